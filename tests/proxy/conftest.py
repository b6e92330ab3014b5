"""The environment of these tests: no proxy and no certificates of the machine they run on."""

import os

import pytest

_NAMES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test sets what it is about."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name in _NAMES:
            monkeypatch.delenv(name)
