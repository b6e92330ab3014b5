"""Who may look: nobody without the token, or the cookie that a browser gets for it."""

import asyncio
import hmac
import json
import re
from http.cookies import SimpleCookie

import httpx
import pytest

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.admin import AdminApp
from callfuse.admin.access import CODE_S, Access
from tests.admin.asking import BEARER, BROWSER, FORM, PATH, TOKEN, Guarded
from tests.support.asgi import Exchange, Headers, Message, Receive, Request, Scope, Send, drive
from tests.support.serving import serve

EVERYWHERE = ("", "plain", "settings", "sessions", "activity", "rates", "page.js", "page.css")


def cookie_of(exchange: Exchange) -> tuple[str, str, set[str]]:
    """Name, value and attributes of the cookie that an answer sets."""
    header = exchange.header(b"set-cookie")
    assert header is not None
    pair, *attributes = header.decode().split("; ")
    name, _, value = pair.partition("=")
    return name, value, {attribute.lower() for attribute in attributes}


@pytest.mark.parametrize("below", EVERYWHERE)
@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"authorization", b"Bearer"),),
        ((b"authorization", b"Bearer " + TOKEN.encode()[:-1]),),
        ((b"authorization", b"Bearer " + TOKEN.encode() + b"x"),),
        ((b"authorization", b"Bearer " + TOKEN.upper().encode()),),
        ((b"authorization", b"Basic " + TOKEN.encode()),),
        ((b"authorization", TOKEN.encode()),),
        ((b"authorization", "Bearer \xfc".encode("latin-1")),),
        ((b"cookie", b"callfuse=" + TOKEN.encode()),),
        ((b"cookie", b"=;;\xff,callfuse_"),),
    ],
)
async def test_without_the_token_there_is_nothing_to_see(below: str, headers: Headers) -> None:
    """Programs are told what to send."""
    exchange = await Guarded().get(below, headers=headers)
    assert exchange.status == 401
    assert exchange.header(b"www-authenticate") == b'Bearer realm="callfuse"'
    assert exchange.body == b'{"error":"use Authorization: Bearer with CALLFUSE_ADMIN_TOKEN"}'


@pytest.mark.parametrize("below", EVERYWHERE)
@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER "])
async def test_with_the_token_there_is(below: str, scheme: bytes) -> None:
    """However the scheme is written."""
    exchange = await Guarded().get(below, headers=((b"authorization", scheme + b" " + TOKEN.encode()),))
    assert exchange.status == 200


async def test_no_comparison_tells_how_much_of_a_guess_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the comparison made for this decides."""
    guarded = Guarded()
    name, value, _ = cookie_of(await guarded.login(TOKEN))
    both = (*BEARER, (b"cookie", f"{name}={value}".encode()))
    assert (await guarded.get("settings", headers=both)).status == 200
    monkeypatch.setattr(hmac, "compare_digest", lambda _one, _other: False)
    assert (await guarded.get("settings", headers=both)).status == 401
    assert (await guarded.login(TOKEN)).status == 401


async def test_health_is_open() -> None:
    """It says no more than that it is up, as which version, and whether the guard is on."""
    from callfuse import __version__

    for enabled in (True, False):
        guarded = Guarded({"tool_call_loop": {"enabled": enabled}})
        exchange = await guarded.get("health", headers=())
        expected = f'{{"status":"ok","version":"{__version__}","enabled":{str(enabled).lower()}}}'
        assert (exchange.status, exchange.body) == (200, expected.encode())


async def test_a_browser_gets_a_form_and_then_a_cookie() -> None:
    """For the token typed once; the cookie opens everything, and is not the token."""
    guarded = Guarded()
    closed = await guarded.get("settings", headers=BROWSER)
    assert closed.status == 401
    assert closed.header(b"www-authenticate") == b'Bearer realm="callfuse"'
    assert b'<form method="post" action="./">' in closed.body
    assert b'<label for="token">' in closed.body
    opened = await guarded.login(TOKEN)
    assert (opened.status, opened.header(b"location"), opened.body) == (303, b"./", b"")
    name, value, attributes = cookie_of(opened)
    assert attributes == {"httponly", "samesite=strict", f"path={PATH}"}
    assert TOKEN not in value
    for below in EVERYWHERE:
        found = await guarded.get(below, headers=((b"cookie", f"{name}={value}; other=1".encode()), *BROWSER))
        assert found.status == 200
        wrong = await guarded.get(below, headers=((b"cookie", f"{name}={value[:-1]}".encode()),))
        assert wrong.status == 401


async def test_a_link_lets_in_once() -> None:
    """A program with the token gets a code; the link with it sets the cookie, and leaves an address without it."""
    guarded = Guarded()
    code = await login_code(guarded)
    assert TOKEN not in code
    entered = await guarded.get("", f"code={code}", headers=BROWSER)
    assert (entered.status, entered.header(b"location"), entered.body) == (303, b"./", b"")
    name, value, attributes = cookie_of(entered)
    assert attributes == {"httponly", "samesite=strict", f"path={PATH}"}
    cookie = (b"cookie", f"{name}={value}".encode())
    assert (await guarded.get("", headers=(cookie, *BROWSER))).status == 200
    again = await guarded.get("", f"code={code}", headers=BROWSER)
    assert (again.status, again.header(b"set-cookie")) == (401, None)
    assert b"This link has already been used, or has expired." in again.body
    back = await guarded.get("", f"code={code}", headers=(cookie, *BROWSER))
    assert (back.status, back.header(b"location")) == (303, b"./")


async def login_code(guarded: Guarded) -> str:
    """A code for one login."""
    made = await guarded.ask(f"{PATH}/login-code", method="POST")
    assert made.status == 200
    code: str = json.loads(made.body)["code"]
    return code


async def test_a_code_is_for_the_token_alone() -> None:
    """Nobody else makes one, no page of another site does, and no guess, other method or newer code leaves one good."""
    guarded = Guarded()
    for headers, status in (((), 401), (BROWSER, 401), ((*BEARER, (b"sec-fetch-site", b"cross-site")), 403)):
        assert (await guarded.ask(f"{PATH}/login-code", headers, method="POST")).status == status
    assert (await guarded.get("login-code")).status == 405
    first = await login_code(guarded)
    for guess in ("", first[:-1], first + "x", "%FF", "None"):
        assert (await guarded.get("", f"code={guess}", headers=BROWSER)).status == 401
    assert (await guarded.ask(f"{PATH}/", BROWSER, f"code={first}", method="HEAD")).status == 401
    second = await login_code(guarded)
    assert (await guarded.get("", f"code={first}", headers=BROWSER)).status == 401
    assert (await guarded.get("", f"code={second}", headers=BROWSER)).status == 303


def test_a_code_is_good_for_a_minute() -> None:
    """And then for nothing."""
    now = 0.0
    access = Access(TOKEN, clock=lambda: now)
    code = access.make_code()
    now = 59
    assert access.take_code(code)
    code = access.make_code()
    now += CODE_S
    assert not access.take_code(code)


async def test_the_cookie_is_secure_where_the_scheme_is() -> None:
    """Over TLS it never leaves in the clear."""
    guarded = Guarded()
    request = Request(f"{PATH}/", f"token={TOKEN}".encode(), FORM)

    async def over_tls(scope: Scope, receive: Receive, send: Send) -> None:
        await guarded.app({**scope, "scheme": "https"}, receive, send)

    _, _, attributes = cookie_of(await drive(over_tls, request))
    assert "secure" in attributes


@pytest.mark.parametrize("mount", ["/a/ä;b", "/x\r\nset-cookie: y=1"])
async def test_the_cookie_s_path_is_the_mount_s(mount: str) -> None:
    """As browsers write it, whatever a host has mounted it at."""
    app = AdminApp(CallFuseMiddleware(Guarded().vendor, {}), token=TOKEN)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": f"{mount}/", "root_path": mount}, receive, send)

    exchange = await drive(mounted, Request("/", f"token={TOKEN}".encode(), FORM))
    header = exchange.header(b"set-cookie")
    assert header is not None
    assert not set(header) & set(b"\r\n")
    path = re.search(rb"Path=([^;]*)", header)
    assert path is not None
    assert path[1] == (b"/a/%C3%A4%3Bb" if "ä" in mount else b"/x%0D%0Aset-cookie%3A%20y%3D1")


async def test_another_token_has_another_cookie() -> None:
    """Neither opens the other's page, nor puts it out in a browser, which knows no ports."""
    guarded = Guarded()
    other = AdminApp(guarded.fuse, token=TOKEN + "2")
    name, value, _ = cookie_of(await guarded.login(TOKEN))
    exchange = await drive(other, Request("/", f"token={TOKEN}2".encode(), FORM))
    other_name, other_value, _ = cookie_of(exchange)
    assert name != other_name
    assert value != other_value
    for cookie in (f"{name}={value}", f"{other_name}={value}"):
        exchange = await drive(other, Request("/", method="GET", headers=((b"cookie", cookie.encode()),)))
        assert exchange.status == 401


@pytest.mark.parametrize(
    "body", [b"", b"token=", b"token=wrong", b"TOKEN=" + TOKEN.encode(), TOKEN.encode(), b"\xff\x00", b"token=%ff%00"]
)
async def test_a_wrong_token_in_the_form(body: bytes) -> None:
    """It is said, the form is there again, and no cookie is set."""
    exchange = await Guarded().ask(f"{PATH}/", FORM, method="POST", body=body)
    assert exchange.status == 401
    assert exchange.header(b"set-cookie") is None
    assert b'<p class="problem" role="alert">This is not the token.</p>' in exchange.body
    assert b'<input id="token"' in exchange.body


async def test_a_long_form_is_not_read() -> None:
    """No more of it than a token may be long."""
    exchange = await Guarded().ask(f"{PATH}/", FORM, method="POST", body=b"token=" + b"x" * 5000)
    assert (exchange.status, exchange.body) == (413, b'{"error":"this form is longer than 4096 bytes"}')


@pytest.mark.parametrize("below", ["", "feedback", "change"])
async def test_a_form_that_does_not_come(below: str) -> None:
    """After the limit for bodies it is answered with 408, and its connection ends."""
    guarded = Guarded({"tool_call_loop": {"read_timeout_s": 0.02}})
    incoming: list[Message] = [{"type": "http.request", "body": b"token=", "more_body": True}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = Request(f"{PATH}/{below}", method="POST", headers=(*FORM, *BEARER)).scope()
    async with asyncio.timeout(20):
        await guarded.app(scope, receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"this form did not arrive within 0.02 s" in sent[1]["body"]


async def test_a_client_that_leaves_while_it_sends_its_form() -> None:
    """It is answered as one without a token, and raises nothing."""
    messages: list[Message] = [
        {"type": "http.request", "body": b"token=", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[int] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message.get("status", 0))

    await Guarded().app(Request(f"{PATH}/", headers=FORM).scope(), receive, send)
    assert sent == [401, 0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((b"sec-fetch-site: same-origin",), 303),
        ((b"sec-fetch-site: none",), 303),
        ((b"sec-fetch-site: same-origin", b"origin: null"), 303),
        ((b"sec-fetch-site: same-site",), 403),
        ((b"sec-fetch-site: cross-site",), 403),
        ((b"sec-fetch-site: cross-site", b"origin: http://here.test:8100"), 403),
        ((b"origin: http://here.test:8100",), 303),
        ((b"origin: https://here.test:8100",), 303),
        ((b"origin: http://here.test",), 403),
        ((b"origin: http://evil.test",), 403),
        ((b"origin: http://evil.test/here.test:8100",), 403),
        ((b"origin: null",), 403),
        ((b"origin: ",), 403),
    ],
)
async def test_no_page_of_another_site_sends_the_form(headers: tuple[bytes, ...], status: int) -> None:
    """Browsers say where a form is from; programs need not."""
    pairs = tuple((name, value) for name, _, value in (header.partition(b": ") for header in headers))
    exchange = await Guarded().login(TOKEN, (*FORM, *pairs))
    assert exchange.status == status
    assert (exchange.header(b"set-cookie") is None) is (status == 403)


@pytest.mark.parametrize(
    ("method", "below", "headers"),
    [
        ("GET", "health", ()),
        ("GET", "ready", ()),
        ("GET", "metrics", ()),
        ("GET", "metrics", BEARER),
        ("GET", "", ()),
        ("GET", "", BROWSER),
        ("GET", "plain", BEARER),
        ("GET", "activity", BEARER),
        ("GET", "page.js", BEARER),
        ("GET", "settings", BEARER),
        ("GET", "sessions", BEARER),
        ("GET", "nothing", BEARER),
        ("DELETE", "settings", BEARER),
        ("POST", "", FORM),
    ],
)
async def test_every_answer_is_kept_by_nobody_and_runs_nothing(method: str, below: str, headers: Headers) -> None:
    """Neither in caches, nor in frames, nor with anything that is not the page's own."""
    exchange = await Guarded().ask(f"{PATH}/{below}", headers, method=method)
    names = [name for name, _ in exchange.headers]
    assert len(set(names)) == len(names)
    assert exchange.header(b"cache-control") == b"no-store"
    assert exchange.header(b"x-content-type-options") == b"nosniff"
    assert exchange.header(b"referrer-policy") == b"same-origin"
    policy = (exchange.header(b"content-security-policy") or b"").decode()
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]{43}='; form-action 'self'; base-uri 'none'; "
        r"frame-ancestors 'none'",
        policy,
    )


def test_a_page_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, or from the environment; one that could be guessed is refused, and so is anything but the middleware."""
    fuse = Guarded().fuse
    monkeypatch.delenv("CALLFUSE_ADMIN_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"no token; give AdminApp one \(token=...\), or set CALLFUSE_ADMIN_TOKEN"):
        AdminApp(fuse)
    with pytest.raises(ConfigError, match=r"the admin token \(keyword\) is too short"):
        AdminApp(fuse, token="guess")
    with pytest.raises(ConfigError, match=r"the admin token \(keyword\) is too short"):
        AdminApp(fuse, token="")
    with pytest.raises(ConfigError, match="AdminApp needs your CallFuseMiddleware, not a Vendor"):
        AdminApp(Guarded().vendor, token=TOKEN)  # type: ignore[arg-type]
    monkeypatch.setenv("CALLFUSE_ADMIN_TOKEN", TOKEN)
    assert isinstance(AdminApp(fuse), AdminApp)


async def test_over_a_socket() -> None:
    """A client with a jar of cookies, a real server, and a vendor who never sees either."""
    guarded = Guarded()
    async with (
        serve(guarded.app, interface="asgi3") as base_url,
        httpx.AsyncClient(base_url=base_url, trust_env=False) as client,
    ):
        assert (await client.get(PATH)).headers["location"] == "./_callfuse/"
        assert (await client.get(f"{PATH}?tool=a%20b")).headers["location"] == "./_callfuse/?tool=a%20b"
        assert (await client.get(f"{PATH}/settings")).status_code == 401
        opened = await client.post(f"{PATH}/", data={"token": TOKEN}, headers={"origin": base_url})
        assert (opened.status_code, opened.headers["location"]) == (303, "./")
        (name,) = SimpleCookie(opened.headers["set-cookie"])
        assert (await client.get(f"{PATH}/settings")).json()[0]["key"] == "store"
        assert (await client.head(f"{PATH}/settings")).content == b""
        assert (await client.get("/%5Fcallfuse%2Fhealth")).json()["status"] == "ok"
        assert name not in (await client.get("/v1/models")).request.headers.get("cookie", "")
    assert guarded.vendor.paths == ["/v1/models"]
