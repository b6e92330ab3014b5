"""The environment of these tests: no certificates, for they go over plain loopback sockets."""

import pytest


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An SDK's client reads those of the machine when it is made, which takes 20 ms."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path_factory.getbasetemp()))
