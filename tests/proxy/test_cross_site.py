"""Credentials that the proxy adds are not for a page of another site that has a browser send a request."""

from typing import Any

import pytest

from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.cross_site import is_cross_site
from callfuse.proxy.gate import CrossSiteGate
from tests.proxy.proxying import Recorder
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream
from tests.support.serving import serve

NAMES = ServeSettings(host="callfuse.lan", hosts=("proxy.internal",)).own_names
Headers = list[tuple[bytes, bytes]]

FOREIGN: dict[str, Headers] = {
    "a form of another page": [(b"host", b"127.0.0.1:8100"), (b"origin", b"https://evil.test")],
    "a page without origin": [(b"host", b"127.0.0.1:8100"), (b"Origin", b"null")],
    "a frame": [(b"host", b"localhost:8100"), (b"sec-fetch-site", b"cross-site")],
    "another port": [(b"host", b"localhost:8100"), (b"origin", b"http://localhost:3000")],
    "the same site": [(b"host", b"localhost:8100"), (b"sec-fetch-site", b"same-site")],
    "a name bound anew": [(b"host", b"evil.test:8100"), (b"origin", b"http://evil.test:8100")],
    "a name bound anew, read only": [(b"host", b"evil.test:8100"), (b"referer", b"http://evil.test:8100/")],
    "a page that tells its referrer only": [(b"host", b"127.0.0.1:8100"), (b"referer", b"https://evil.test/a")],
    "an empty referrer": [(b"host", b"127.0.0.1:8100"), (b"referer", b"")],
    "a name bound anew, that looks like one's own": [
        (b"host", b"evil.test"),
        (b"origin", b"http://evil.test"),
        (b"sec-fetch-site", b"same-origin"),
    ],
    "a name bound anew, that tells nothing": [(b"host", b"evil.test:8100")],
    "a name that begins as an own one": [(b"host", b"proxy.internal.evil.test")],
    "no host": [(b"origin", b"http://localhost")],
}
OWN: dict[str, Headers] = {
    "an SDK": [(b"host", b"127.0.0.1:8100"), (b"user-agent", b"OpenAI/Python")],
    "node": [(b"host", b"proxy.internal"), (b"sec-fetch-mode", b"cors")],
    "a name with its port": [(b"host", b"Proxy.Internal:8100")],
    "an own page that tells its referrer only": [
        (b"host", b"localhost:8100"),
        (b"referer", b"http://localhost:8100/a?b"),
    ],
    "the name it listens on": [(b"host", b"callfuse.lan:8100"), (b"origin", b"http://callfuse.lan:8100")],
    "an own page": [(b"host", b"127.0.0.1:8100"), (b"origin", b"http://127.0.0.1:8100")],
    "an address bar": [(b"host", b"[::1]:8100"), (b"sec-fetch-site", b"none")],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_foreign(name: str) -> None:
    """By any of the three headers."""
    assert is_cross_site(FOREIGN[name], NAMES)


@pytest.mark.parametrize("name", OWN)
def test_what_is_not(name: str) -> None:
    """Clients that are no browsers, and pages of the proxy's own origin."""
    assert not is_cross_site(OWN[name], NAMES)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::"])
async def test_a_name_is_foreign_wherever_the_proxy_listens(host: str) -> None:
    """A page's own name may lead to any address; which names are the proxy's own is said by a setting."""
    scope = {"type": "http", "path": "/v1/models", "headers": [(b"host", b"callfuse.internal")]}
    own = ServeSettings(upstream="http://me:secret@vendor.test", host=host)
    named = ServeSettings(upstream=own.upstream, host=host, hosts=("CallFuse.internal",))
    assert ReverseProxy(own).is_foreign(scope)
    assert not ReverseProxy(named).is_foreign(scope)
    assert not ReverseProxy(ServeSettings(upstream="http://vendor.test", host=host)).is_foreign(scope)


async def test_the_gate_is_before_what_answers_by_itself() -> None:
    """A command of a foreign page is not even read; an own one is, and a lifespan."""
    proxy = ReverseProxy(ServeSettings(upstream="http://me:secret@vendor.test"))
    reached: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        reached.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    gate = CrossSiteGate(app, proxy)
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
    await gate({**scope, "headers": FOREIGN["a form of another page"]}, receive, send)
    assert (sent[0]["status"], reached) == (403, [])
    await gate({**scope, "headers": OWN["an SDK"]}, receive, send)
    await gate({"type": "lifespan"}, receive, send)
    assert reached == ["http", "lifespan"]


@pytest.mark.parametrize("own", [b"", b"authorization: Bearer own\r\n"])
async def test_a_form_gets_no_credentials(own: bytes) -> None:
    """It is refused before the upstream is asked, unless it brings its own."""
    recorder = Recorder()
    body = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: https://evil.test\r\n" + own + b"content-length: 2\r\n\r\n{}"
    async with upstream(recorder) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin.replace("//", "//me:secret@")))
        async with serve(proxy) as base_url, connect(base_url) as client:
            await client.send(body)
            head, said = await client.response()
    if own:
        assert recorder.head.all(b"authorization") == [b"Bearer own"]
        return
    assert head.line.split()[1] == b"403"
    assert head.all(b"x-should-retry") == [b"false"]
    assert b"secret" not in said
    assert recorder.heard == []
