"""Credentials that the proxy adds are not for a page of another site that has a browser send a request."""

import pytest

from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.cross_site import is_cross_site
from callfuse.proxy.settings import ServeSettings
from tests.proxy.proxying import Recorder
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream
from tests.support.serving import serve

Headers = list[tuple[bytes, bytes]]

FOREIGN: dict[str, Headers] = {
    "a form of another page": [(b"host", b"127.0.0.1:8100"), (b"origin", b"https://evil.test")],
    "a page without origin": [(b"host", b"127.0.0.1:8100"), (b"Origin", b"null")],
    "a frame": [(b"host", b"localhost:8100"), (b"sec-fetch-site", b"cross-site")],
    "another port": [(b"host", b"localhost:8100"), (b"origin", b"http://localhost:3000")],
    "the same site": [(b"host", b"localhost:8100"), (b"sec-fetch-site", b"same-site")],
    "a name bound anew": [(b"host", b"evil.test:8100"), (b"origin", b"http://evil.test:8100")],
    "a name bound anew, read only": [(b"host", b"evil.test:8100"), (b"referer", b"http://evil.test:8100/")],
    "no host": [(b"origin", b"http://localhost")],
}
OWN: dict[str, Headers] = {
    "an SDK": [(b"host", b"127.0.0.1:8100"), (b"user-agent", b"OpenAI/Python")],
    "node": [(b"host", b"proxy.internal"), (b"sec-fetch-mode", b"cors")],
    "an own page": [(b"host", b"127.0.0.1:8100"), (b"origin", b"http://127.0.0.1:8100")],
    "an address bar": [(b"host", b"[::1]:8100"), (b"sec-fetch-site", b"none")],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_foreign(name: str) -> None:
    """By any of the three headers."""
    assert is_cross_site(FOREIGN[name], "127.0.0.1")


@pytest.mark.parametrize("name", OWN)
def test_what_is_not(name: str) -> None:
    """Clients that are no browsers, and pages of the proxy's own origin."""
    assert not is_cross_site(OWN[name], "127.0.0.1")


def test_a_name_is_one_s_own_where_the_proxy_is_for_others() -> None:
    """Only one that listens on a loopback address knows all its names."""
    headers = [(b"host", b"callfuse.internal"), (b"origin", b"https://callfuse.internal")]
    assert not is_cross_site(headers, "0.0.0.0")
    assert is_cross_site(headers, "localhost")
    assert is_cross_site(headers, "::1")


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
