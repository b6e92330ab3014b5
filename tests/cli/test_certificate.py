"""`callfuse serve` with HTTPS: what is wrong with a certificate is said, and a new one is taken without a restart."""

import json
import logging
import re
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest

from callfuse.cli.certificate import Certificate, load_context
from callfuse.cli.greeting import base_url
from callfuse.cli.reload import POLL_S
from callfuse.config.serve import ServeSettings
from callfuse.errors import ConfigError
from tests.cli.processes import callfuse
from tests.cli.test_serve import PATIENCE_S, Served, Vendor, serving, vendor
from tests.support.certificates import make_certificate

__all__ = ["vendor"]


@pytest.fixture
def one(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    return make_certificate(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> tuple[Path, Path]:
    """Another one."""
    return make_certificate(tmp_path / "other")


def der(certificate: Path) -> bytes:
    """A certificate as it is sent."""
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def shaken(context: ssl.SSLContext, name: str | None = None) -> bytes | None:
    """The certificate that a client gets in a handshake with a server of this context; `name`: the host it names."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(there, back, server_side=True)
    client = trusting.wrap_bio(back, there, server_hostname=name)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.mark.parametrize("name", [None, "callfuse.test"])
def test_a_connection_gets_the_newest_certificate(
    one: tuple[Path, Path], other: tuple[Path, Path], caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    """The files are looked at now and then. While they do not fit each other the last ones stay, which is said once."""
    caplog.set_level(logging.INFO, "callfuse.serve")
    clock, first = Clock(), der(one[0])
    context = Certificate(str(one[0]), str(one[1]), clock).context
    assert shaken(context, name) == first
    shutil.copy(other[0], one[0])
    assert shaken(context, name) == first, "nobody has looked"
    for _ in range(3):
        clock.now += POLL_S
        assert shaken(context, name) == first
    [said] = caplog.messages
    assert said.startswith("the new certificate has errors; the previous one stays in use: serve.tls_key = ")
    shutil.copy(other[1], one[1])
    clock.now += POLL_S
    assert shaken(context, name) == der(other[0])
    assert caplog.messages[1:] == [f"new connections get the certificate that is now in {one[0]}"]
    one[1].unlink()
    clock.now += POLL_S
    assert shaken(context, name) == der(other[0])
    assert caplog.messages[2].endswith(": No such file or directory")


def test_certificate_and_key_in_one_file(one: tuple[Path, Path], tmp_path: Path) -> None:
    """No second file is needed then."""
    both = tmp_path / "both.pem"
    both.write_text(one[1].read_text() + one[0].read_text())
    assert shaken(load_context(str(both), None)) == der(one[0])


def test_what_is_wrong_with_files_is_said(one: tuple[Path, Path], other: tuple[Path, Path], tmp_path: Path) -> None:
    """By the setting that names the file."""
    certificate, key = map(str, one)
    text, locked, none = (tmp_path / name for name in ("text.pem", "locked.pem", "none.pem"))
    text.write_text("no PEM: \xe4")
    locking = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", key, "-out", str(locked)]
    subprocess.run(locking, check=True, capture_output=True)
    cases = [
        (str(none), key, f"serve.tls_certificate = '{none}': No such file or directory"),
        (str(tmp_path), key, f"serve.tls_certificate = '{tmp_path}': Is a directory"),
        (certificate, str(none), f"serve.tls_key = '{none}': No such file or directory"),
        (str(text), key, f"serve.tls_certificate = '{text}': the file contains no certificate in PEM format"),
        (key, key, f"serve.tls_certificate = '{key}': the file contains no certificate in PEM format"),
        (certificate, str(text), f"serve.tls_key = '{text}': the file contains no private key in PEM format"),
        (
            certificate,
            certificate,
            f"serve.tls_key = '{certificate}': the file contains no private key in PEM format",
        ),
        (certificate, None, f"serve.tls_certificate = '{certificate}': the file contains no private key in PEM format"),
        (certificate, str(other[1]), f"serve.tls_key = '{other[1]}': the key does not belong to the certificate in"),
        (certificate, str(locked), f"serve.tls_key = '{locked}': the key is encrypted; use one without a passphrase"),
    ]
    for names, key_name, said in cases:
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_context(names, key_name)


def looked_at(env: dict[str, str]) -> list[tuple[str, str]]:
    """What `doctor` says of a certificate."""
    checks = json.loads(callfuse("doctor", "--json", **env).stdout)["checks"]
    return [(one["state"], one["found"]) for one in checks if one["area"] == "certificate"]


def test_wrong_files_end_the_start(one: tuple[Path, Path], other: tuple[Path, Path]) -> None:
    """Before anything listens, as other wrong settings do; `doctor` says the same."""
    env = {"CALLFUSE_SERVE_TLS_CERTIFICATE": str(one[0]), "CALLFUSE_SERVE_TLS_KEY": str(other[1])}
    ended = callfuse("serve", "--upstream", "http://127.0.0.1:9", **env)
    assert ended.returncode == 2
    said = f"serve.tls_key = '{other[1]}': the key does not belong to the certificate in {one[0]}"
    assert ended.stderr.splitlines() == ["callfuse: cannot start with these settings:", f"  {said}"]
    assert ("failed", said) in looked_at(env)
    env["CALLFUSE_SERVE_TLS_KEY"] = str(one[1])
    assert ("ok", f"{one[0]} has a certificate, and its key fits") in looked_at(env)


def test_the_greeting_names_the_scheme() -> None:
    """As clients need it in their base URL."""
    assert base_url(ServeSettings(tls_certificate="c.pem"), 7) == "https://127.0.0.1:7"


@contextmanager
def answer_to(served: Served, path: str, certificate: Path) -> Iterator[HTTPResponse]:
    """The answer to a GET over a connection of its own, by a server with this certificate."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    connection = HTTPSConnection("127.0.0.1", served.port, timeout=PATIENCE_S, context=trusting)
    with closing(connection):
        connection.request("GET", path)
        with connection.getresponse() as answer:
            yield answer


def certificate_of(served: Served) -> bytes:
    """The certificate that a new connection gets."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", served.port), timeout=PATIENCE_S))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_new_certificate_breaks_no_connection(
    vendor: str, one: tuple[Path, Path], other: tuple[Path, Path], workers: str
) -> None:
    """New connections get it, in each worker; an open stream goes on."""
    env = {"CALLFUSE_SERVE_TLS_CERTIFICATE": str(one[0]), "CALLFUSE_SERVE_TLS_KEY": str(one[1])}
    first = one[0].with_name("first.pem")
    shutil.copy(one[0], first)
    with serving("--upstream", vendor, "--workers", workers, **env) as served:
        assert f" on https://127.0.0.1:{served.port} guards " in served.greeting
        with answer_to(served, "/slow", first) as stream:
            assert stream.read(3) == b"/sl"
            for new, place in zip(other, one, strict=True):
                shutil.copy(new, place)
            until, row = time.monotonic() + PATIENCE_S, 0
            while row < 20:
                assert time.monotonic() < until
                row = row + 1 if certificate_of(served) == der(other[0]) else 0
            Vendor.go_on.set()
            assert stream.read() == b"ow and its end"
        with answer_to(served, "/after", other[0]) as answer:
            assert answer.read() == b"/after and its end"
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in printed
