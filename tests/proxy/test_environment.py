"""The way to the upstream as the environment has it: HTTP proxies, certificates, and what is not read."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from callfuse.config.serve import ServeSettings
from callfuse.errors import ConfigError
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.environment import proxy_for, tls_context
from callfuse.proxy.target import Upstream
from tests.proxy.proxying import Recorder
from tests.proxy.wire import Head, Peer, get, post
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream as listening
from tests.support.serving import serve

SECRET = "secret-of-the-test"


async def ask(upstream: str, request: bytes = post("/v1/x?a=%2F")) -> tuple[Head, bytes]:
    """What a client gets from a proxy in front of this upstream, set up in the environment as it is now."""
    async with serve(ReverseProxy(ServeSettings(upstream=upstream))) as base_url, connect(base_url) as client:
        await client.send(request)
        return await client.response()


def message(body: bytes) -> str:
    """The message of an error answer."""
    text: str = json.loads(body)["error"]["message"]
    return text


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for vendor.test and 127.0.0.1 that signs itself, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate is made with the openssl command, which is not here")
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:vendor.test,IP:127.0.0.1"
    making = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    making += ["-days", "2", "-subj", "/CN=vendor.test", "-addext", names, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(making, cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    """The upstream's side of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_an_authority_from_a_file(
    variable: str, certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upstream whose certificate the named file vouches for is spoken to over TLS."""
    monkeypatch.setenv(variable, str(certificate))
    upstream = Recorder()
    async with listening(upstream, tls) as origin:
        _, body = await ask(origin)
    assert (body, upstream.head.line) == (b"ok", b"POST /v1/x?a=%2F HTTP/1.1")


@pytest.fixture
def folders(certificate: Path, tmp_path: Path) -> str:
    """A list of two folders, the second with the certificate in a file named by hash, as OpenSSL has them."""
    naming = ["openssl", "x509", "-hash", "-noout", "-in", str(certificate)]
    name = subprocess.run(naming, check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "none").mkdir()
    (tmp_path / f"{name}.0").write_text(certificate.read_text())
    return f"{tmp_path / 'none'}:{tmp_path}"


async def test_an_authority_from_a_folder(folders: str, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSL_CERT_DIR is a list of folders, and all of them count."""
    monkeypatch.setenv("SSL_CERT_DIR", folders)
    async with listening(Recorder(), tls) as origin:
        _, body = await ask(origin)
    assert body == b"ok"


async def test_a_certificate_that_nobody_vouches_for(tls: ssl.SSLContext) -> None:
    """It is a 502 that says so."""
    async with listening(Recorder(), tls) as origin:
        head, body = await ask(origin)
    assert head.line.split()[1] == b"502"
    assert message(body) == f"the certificate of {origin} is not accepted: self-signed certificate"


async def test_a_certificate_for_another_host(
    certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name in the certificate is checked."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with listening(Recorder(), tls) as origin:
        head, body = await ask(origin.replace("127.0.0.1", "localhost"))
    assert head.line.split()[1] == b"502"
    assert "Hostname mismatch" in message(body)


async def test_plain_http_where_tls_is_spoken_to() -> None:
    """An https upstream that speaks plain HTTP is a 502."""

    async def script(peer: Peer) -> None:
        await peer.exactly(5)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with listening(script) as origin:
        _, body = await ask(origin.replace("http:", "https:"))
    assert message(body).startswith("the TLS handshake with https://127.0.0.1:")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_certificates_that_cannot_be_read(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing or holds none is an error at the start that names the variable and the file."""
    empty = tmp_path / "empty.pem"
    empty.touch()
    for place in (tmp_path / "missing.pem", empty):
        monkeypatch.setenv(variable, str(place))
        with pytest.raises(ConfigError, match=f"{variable} is '{place}', which cannot be read as certificates"):
            tls_context()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_plain_http_through_a_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is asked for the whole URL, and the upstream's name is the proxy's to resolve."""
    proxy = Recorder()
    async with listening(proxy) as address:
        monkeypatch.setenv(variable, address)
        _, body = await ask("http://vendor.test/base")
    assert body == b"ok"
    assert proxy.head.line == b"POST http://vendor.test/base/v1/x?a=%2F HTTP/1.1"
    assert proxy.head.headers == ((b"host", b"vendor.test"), (b"content-length", b"2"))


def tunnel(target: str, seen: list[Head]) -> Callable[[Peer], Awaitable[None]]:
    """An HTTP proxy that connects everyone to this address, whatever they ask for."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def script(peer: Peer) -> None:
        seen.append(await peer.head())
        url = urlsplit(target)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(peer.reader, writer), pipe(reader, peer.writer))

    return script


async def test_https_through_a_proxy(certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy opens a tunnel, sees its own credentials and nothing of the request; the upstream sees the reverse."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    upstream, seen = Recorder(), list[Head]()
    async with listening(upstream, tls) as origin, listening(tunnel(origin, seen)) as address:
        monkeypatch.setenv("HTTPS_PROXY", address.replace("//", f"//me:{SECRET}@"))
        _, body = await ask("https://vendor.test", post("/v1/x?key=k", b"{}", b"authorization: Bearer k"))
    (connected,) = seen
    assert body == b"ok"
    assert connected.line == b"CONNECT vendor.test:443 HTTP/1.1"
    assert connected.all(b"proxy-authorization") != []
    assert connected.all(b"authorization") == []
    assert upstream.head.headers == (
        (b"host", b"vendor.test"),
        (b"authorization", b"Bearer k"),
        (b"content-length", b"2"),
    )


async def test_credentials_of_a_proxy_for_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in the request to the proxy; those of a client for a proxy of its own do not."""
    proxy = Recorder()
    async with listening(proxy) as address:
        monkeypatch.setenv("HTTP_PROXY", address.replace("//", "//me:p%40ss@"))
        await ask("http://vendor.test", get("/", b"proxy-authorization: Basic client"))
    assert proxy.head.all(b"proxy-authorization") == [b"Basic bWU6cEBzcw=="]


async def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tunnel is a 502 that names the proxy without its credentials."""
    proxy = Recorder(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
    async with listening(proxy) as address:
        monkeypatch.setenv("HTTPS_PROXY", address.replace("//", f"//me:{SECRET}@"))
        head, body = await ask("https://vendor.test")
    assert head.line.split()[1] == b"502"
    assert message(body) == f"the proxy {address} answered 407 when asked for https://vendor.test"


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a 502 that names the proxy, not the upstream."""
    async with listening(Recorder()) as address:
        monkeypatch.setenv("HTTP_PROXY", address)
    _, body = await ask("http://vendor.test")
    assert message(body) == f"cannot connect to the proxy {address}: Connection refused"


@pytest.mark.parametrize("exempt", ["*", "127.0.0.1", "other.test, 127.0.0.1:{port}"])
async def test_no_proxy(exempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream that NO_PROXY names is asked directly."""
    upstream = Recorder()
    async with listening(upstream) as origin:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", exempt.format(port=urlsplit(origin).port))
        _, body = await ask(origin)
    assert body == b"ok"


@pytest.mark.parametrize(
    ("upstream", "variables", "proxy"),
    [
        ("https://vendor.test", {"HTTP_PROXY": "http://a.test:1"}, None),
        ("https://vendor.test", {"HTTP_PROXY": "http://a.test:1", "https_proxy": "b.test:2"}, "http://b.test:2"),
        ("http://vendor.test", {"ALL_PROXY": "http://a.test:1", "http_proxy": "http://b.test:2"}, "http://b.test:2"),
        ("http://vendor.test", {"HTTP_PROXY": "http://a.test:1", "no_proxy": ".vendor.test"}, None),
        ("http://api.vendor.test", {"HTTP_PROXY": "http://a.test:1", "no_proxy": "vendor.test"}, None),
        ("http://myvendor.test", {"HTTP_PROXY": "http://a.test:1", "no_proxy": "vendor.test"}, "http://a.test:1"),
    ],
)
def test_which_proxy(
    upstream: str, variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the upstream's scheme decides, then ALL_PROXY; NO_PROXY exempts hosts and their subdomains."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for(Upstream.parse(upstream))
    assert (str(found.url) if found else None) == proxy


@pytest.mark.parametrize("value", [f"socks5://me:{SECRET}@127.0.0.1:1", f"http://me:{SECRET}@127.0.0.1:x"])
def test_a_proxy_that_cannot_be_used(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error at the start: to go around a proxy would be a surprise. The message holds no credentials."""
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ConfigError, match="use http://host:port") as raised:
        proxy_for(Upstream.parse("https://vendor.test"))
    assert SECRET not in str(raised.value)


async def test_netrc_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that the machine has for the upstream's host are not added."""
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    upstream = Recorder()
    async with listening(upstream) as origin:
        await ask(origin)
    assert upstream.head.names == [b"host", b"content-length"]
