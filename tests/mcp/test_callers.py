"""Whose calls count together, and what is kept of them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from callfuse.config import load_config
from callfuse.conversations.identity import Lane
from callfuse.mcp.caller import Caller
from callfuse.mcp.callers import Callers
from callfuse.mcp.messages import CallRequest, read_post, read_responses
from callfuse.mcp.results import RESULTS_BYTES
from callfuse.observe.bus import Bus
from callfuse.observe.events import NOWHERE, LedgerDropped
from tests.mcp.server import META, NEW, OLD, ToolServer, call, call_message, dumps, guarded, notices, post, text
from tests.mcp.server import with_header as having
from tests.support.asgi import Headers, Request, drive, run, run_all
from tests.support.longtext import text_of
from tests.support.observing import Observed

BEARER: Headers = (*NEW, (b"authorization", b"Bearer one"))
OWN: Headers = (*OLD, (b"x-callfuse-session-id", b"run-1"), (b"authorization", b"Bearer one"))


def client(name: str) -> dict[str, Any]:
    """The `_meta` of another client."""
    return {**META, "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}


def signed(signature: bytes) -> Headers:
    """Headers with a signature of AWS's, by one and the same key."""
    credential = b"Credential=AKIA/20260728/eu-west-1/bedrock-agentcore/aws4_request"
    return (*NEW, (b"authorization", b"AWS4-HMAC-SHA256 " + credential + b", Signature=" + signature))


OF_USERS = ("x-brave-api-key", "x-github-token", "x-user-id", "x-forwarded-client-cert", "x-goog-iap-jwt-assertion")
"""Headers by which servers know their users, that no list has."""


def having_one(name: str, value: bytes) -> Request:
    """A call with one more header."""
    return call(headers=(*NEW, (name.encode(), value)))


APART: list[tuple[str, Request, Request]] = [
    ("session", call(), call(headers=having(OLD, b"mcp-session-id", b"other"))),
    ("path", call(), call(path="/other/mcp")),
    ("credential", call(headers=BEARER), call(headers=having(BEARER, b"authorization", b"Bearer two"))),
    ("credential of a session", call(headers=OLD), call(headers=(*OLD, (b"x-api-key", b"k")))),
    ("client", call(headers=NEW, meta=META), call(headers=NEW, meta=client("other"))),
    ("host", call(headers=NEW, meta=META), call(headers=having(NEW, b"host", b"evil.test"), meta=META)),
    ("origin", call(headers=NEW, meta=META), call(headers=having(NEW, b"origin", b"https://evil.test"), meta=META)),
    ("agent", call(headers=NEW, meta=META), call(headers=having(NEW, b"user-agent", b"agent/2"), meta=META)),
    ("cookie", call(headers=(*NEW, (b"cookie", b"session=1"))), call(headers=(*NEW, (b"cookie", b"session=2")))),
    *((f"header {name}", having_one(name, b"1"), having_one(name, b"2")) for name in OF_USERS),
    (
        "header beside a gateway's credential",
        call(headers=(*BEARER, (b"x-notion-token", b"1"))),
        call(headers=(*BEARER, (b"x-notion-token", b"2"))),
    ),
    ("query", replace(call(headers=NEW), query=b"api_key=1"), replace(call(headers=NEW), query=b"api_key=2")),
    ("query of a session", replace(call(), query=b"token=1"), replace(call(), query=b"token=2")),
    ("host of a session", call(), call(headers=having(OLD, b"host", b"evil.test"))),
    ("signature", call(headers=signed(b"1")), call(headers=signed(b"2"))),
    (
        "signature of a run",
        call(headers=(*signed(b"1"), (b"x-callfuse-session-id", b"run-1"))),
        call(headers=(*signed(b"2"), (b"x-callfuse-session-id", b"run-1"))),
    ),
    (
        "sessions whose conversations anybody may call so",
        call(meta={"session_id": "default"}),
        call(meta={"session_id": "default"}, headers=having(OLD, b"mcp-session-id", b"other")),
    ),
    ("thread", call(meta={"threadId": "1"}), call(meta={"threadId": "2"})),
    ("name", call(headers=OWN), call(headers=having(OWN, b"x-callfuse-session-id", b"run-2"))),
    (
        "a name that anybody may use",
        call(headers=(*NEW, (b"x-callfuse-session-id", b"run-1"))),
        call(headers=(*having(NEW, b"origin", b"https://evil.test"), (b"x-callfuse-session-id", b"run-1"))),
    ),
    (
        "baggage",
        call(headers=NEW, meta={"baggage": "session.id=1"}),
        call(headers=NEW, meta={"baggage": "session.id=2"}),
    ),
]


@pytest.mark.parametrize(("one", "other"), [pair[1:] for pair in APART], ids=[pair[0] for pair in APART])
def test_callers_are_told_apart(one: Request, other: Request) -> None:
    """Two calls of each are no loop of either, and nobody gets the result of another."""
    server = ToolServer()
    app = guarded(server)
    done = run_all(app, [one, one, other, other])
    assert not any(map(notices, done))
    assert (len(server.runs), app.callers) == (4, 2)
    assert notices(run(app, one))


TOGETHER: list[tuple[str, Request, Request]] = [
    ("id", call(id_=1), call(id_="two")),
    ("credential", call(headers=BEARER, meta=META), call(headers=BEARER, meta={**META, "progressToken": 7})),
    (
        "sessions of one conversation",
        call(meta={"threadId": "t"}, headers=OLD),
        call(meta={"threadId": "t"}, headers=having(OLD, b"mcp-session-id", b"other")),
    ),
    (
        "signatures by one key in a session",
        call(headers=(*OLD, signed(b"1")[-1])),
        call(headers=(*OLD, signed(b"2")[-1])),
    ),
    ("ChatGPT", call(meta={"openai/session": "s"}), call(meta={"openai/session": "s", "openai/locale": "de"})),
    ("sessions of one run", call(headers=OWN), call(headers=having(OWN, b"mcp-session-id", b"other"))),
    (
        "conversation that others name",
        call(meta={"sessionId": "t"}, headers=(*OLD, (b"x-api-key", b"k"))),
        call(meta={"sessionId": "t"}, headers=(*having(OLD, b"mcp-session-id", b"other"), (b"x-api-key", b"k"))),
    ),
    (
        "traces, proxies and mirrored arguments",
        call(headers=(*NEW, (b"traceparent", b"00-1"), (b"x-forwarded-for", b"1"), (b"mcp-param-q", b"a"))),
        call(headers=(*NEW, (b"tracestate", b"1"), (b"x-request-id", b"2"), (b"dpop", b"b"))),
    ),
    (
        "sub-agents of a session",
        call(headers=(*OLD, (b"traceparent", b"00-1"))),
        call(headers=(*OLD, (b"traceparent", b"00-2"))),
    ),
]


@pytest.mark.parametrize(("one", "other"), [pair[1:] for pair in TOGETHER], ids=[pair[0] for pair in TOGETHER])
def test_calls_of_one_caller_count_together(one: Request, other: Request) -> None:
    """Whatever else differs."""
    app = guarded(ToolServer())
    done = run_all(app, [one, other, one])
    assert [len(notices(each)) for each in done] == [0, 0, 1]
    assert app.callers == 1


def test_headers_that_a_setting_names_tell_callers_apart() -> None:
    """Such as one that a proxy adds, where there are many clients without a credential."""
    server = ToolServer()
    app = guarded(server, credential_headers=["x-forwarded-for"])
    run_all(app, [call(headers=(*NEW, (b"x-forwarded-for", b"10.0.0.%d" % at))) for at in range(6)])
    assert len(server.runs) == 6


class User:
    """Who a middleware in front says that it is, as Starlette's do."""

    def __init__(self, *, known: bool, name: str = "") -> None:
        self.is_authenticated = known
        self.display_name = name

    @property
    def identity(self) -> str:
        """As Starlette's base class has it."""
        raise NotImplementedError


def test_who_is_authenticated_no_more_gets_nothing_that_was_kept() -> None:
    """The server is asked, which refuses."""
    server, known = ToolServer(), True
    app = guarded(server)

    async def authenticating(scope: Any, receive: Any, send: Any) -> None:
        scope["user"] = User(known=known)
        await app(scope, receive, send)

    done = run_all(authenticating, [call(headers=BEARER)] * 3)
    assert notices(done[2])
    known = False
    assert not notices(run(authenticating, call(headers=BEARER)))
    assert len(server.runs) == 3


def test_users_of_one_gateway_are_told_apart() -> None:
    """Where a middleware in front knows them by what nothing else shows."""
    server, name = ToolServer(), "alice"
    app = guarded(server)

    async def authenticating(scope: Any, receive: Any, send: Any) -> None:
        scope["user"] = User(known=True, name=name)
        await app(scope, receive, send)

    assert notices(run_all(authenticating, [call(headers=BEARER)] * 3)[2])
    name = "bob"
    assert not notices(run(authenticating, call(headers=BEARER)))
    assert len(server.runs) == 3


OPENINGS = [("server/discover", {"_meta": META}), ("initialize", {"_meta": META, "protocolVersion": "2025-11-25"})]


@pytest.mark.parametrize(("method", "params"), OPENINGS)
def test_a_client_that_begins_anew_is_a_new_run(method: str, params: dict[str, Any]) -> None:
    """Without a session nothing else tells it from the run before, whose calls it makes again."""
    server = ToolServer()
    app = guarded(server)
    opening = post(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
        having(NEW, b"mcp-method", method.encode()),
    )
    mine = call(headers=NEW, meta=META)
    done = run_all(app, [opening, mine, mine, opening, mine, mine, mine])
    assert [len(notices(one)) for one in done] == [0, 0, 0, 0, 0, 0, 1]
    done = run_all(app, [*[mine] * 6, opening, mine])
    assert [len(notices(one)) for one in done] == [1, 1, 1, 1, 1, 1, 0, 0]  # and nothing is blocked any more


def test_a_client_with_a_session_does_not_begin_anew() -> None:
    """What a session has called stays."""
    app = guarded(ToolServer())
    opening = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, OWN)
    done = run_all(app, [call(headers=OWN), call(headers=OWN), opening, call(headers=OWN)])
    assert notices(done[3])


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_caller_is_forgotten(status: int) -> None:
    """Its session is over, or its credential: no result is given any more."""
    server = ToolServer()
    app = guarded(server)
    run_all(app, [call(), call()])
    server.status = status
    run(app, call({"q": "other"}))
    assert app.callers == 0
    assert run(app, call()).status == status


def test_a_session_that_is_closed_is_forgotten() -> None:
    """Once the server has agreed."""

    server = ToolServer()

    async def app_(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "DELETE":
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await server(scope, receive, send)

    app, status = guarded(app_), 405
    delete = Request("/mcp", b"", OLD, method="DELETE")
    run_all(app, [call(), delete])
    assert app.callers == 1
    status = 200
    run(app, delete)
    assert app.callers == 0


@pytest.mark.parametrize("status", [200, 404])
def test_a_run_outlasts_its_sessions(status: int) -> None:
    """A client that opens and closes one for each call, under one name, is still the same."""
    server = ToolServer()

    async def app_(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "DELETE":
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await server(scope, receive, send)

    app, sessions = guarded(app_), [having(OWN, b"mcp-session-id", b"s%d" % at) for at in range(4)]
    done = run_all(app, [call(headers=sessions[0]), Request("/mcp", b"", sessions[0], method="DELETE")])
    server.status = status
    done = run_all(app, [call({"q": "lost"}, headers=sessions[1])])
    server.status = 200
    done = run_all(app, [call(headers=one) for one in sessions[1:]])
    assert [len(notices(one)) for one in done] == [0, 0, 1]


async def test_what_was_under_way_does_not_bring_a_caller_back() -> None:
    """Its session is over, whatever still comes of its calls."""
    slow = Slow(waits_for=1)
    app = guarded(slow)
    task = asyncio.create_task(drive(app, call(headers=NEW, meta=META)))
    await slow.all_wait.wait()
    begins = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
    await drive(app, post(begins, having(NEW, b"mcp-method", b"server/discover")))
    slow.go.set()
    assert not notices(await task)
    assert app.callers == 0


class Slow:
    """A server whose tool runs until it is let go."""

    def __init__(self, waits_for: int = 5) -> None:
        self.server = ToolServer()
        self._waits_for = waits_for
        self.go = asyncio.Event()
        self.all_wait = asyncio.Event()
        self.waiting = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        message = await receive()

        async def again() -> Any:
            return message

        if b"tools/call" in message.get("body", b""):
            self.waiting += 1
            if self.waiting == self._waits_for:
                self.all_wait.set()
            await self.go.wait()
        await self.server(scope, again, send)


async def test_equal_calls_at_the_same_time_are_one_piece_of_evidence() -> None:
    """They come from one answer of a model, for all that is known: all run."""
    slow = Slow()
    app = guarded(slow)
    calls = [asyncio.create_task(drive(app, call(id_=at))) for at in range(5)]
    await slow.all_wait.wait()
    slow.go.set()
    first = await asyncio.gather(*calls)
    assert not any(map(notices, first))
    second, third = await drive(app, call()), await drive(app, call())
    assert (len(notices(second)), len(notices(third))) == (0, 1)
    assert len(slow.server.runs) == 6


def requests(*arguments: dict[str, Any]) -> list[CallRequest]:
    """Calls as they are read from POSTs."""
    return [read_post(dumps(call_message(one, id_=at))).calls[0] for at, one in enumerate(arguments)]


def answer_of(request: CallRequest, said: str) -> bytes:
    """The response to a call."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request.id, dumps(text(said)))


def caller(clock: Any = lambda: 0.0, **settings: Any) -> Caller:
    """A caller under these settings."""
    return Caller(load_config({"tool_call_loop": settings}), NOWHERE, Bus(), clock)


def make(one: Caller, request: CallRequest, said: str = "nothing") -> bool:
    """A call, which runs if it may; whether it was withheld."""
    (pending,) = one.begin([request], b"")
    if not pending.withheld:
        one.settle(answer_of(request, said), {request.key: pending}.get)
    return pending.withheld


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_loop_of_several_calls_is_warned_of_at_first(at_once: bool) -> None:
    """None is given its previous result before it has come as often as it may by itself: an agent may have edited two
    files by other means before it looks at both again."""
    server = ToolServer(lambda params: text(f"content of {params['arguments']['q']}"))
    app = guarded(server)
    notes, ran = [], []
    for _ in range(4):
        pair = [call({"q": word}, id_=word) for word in ("a", "b")]
        if at_once:
            done = await asyncio.gather(*(drive(app, one) for one in pair))
        else:
            done = [await drive(app, one) for one in pair]
        notes.append([len(notices(one)) for one in done])
        ran.append(len(server.runs))
    assert ran == [2, 4, 4, 4]
    assert notes == [[0, 0], [0, 1], [1, 1], [1, 1]]


async def test_how_often_a_call_has_run_is_forgotten_in_time() -> None:
    """What was looked at twice long ago may be looked at again."""
    server = ToolServer(lambda params: text(f"content of {params['arguments']['q']}"))
    app = guarded(server)
    for _ in range(2):
        for at in range(60):
            await drive(app, call({"q": f"new {at} {len(server.runs)}"}))
        before = len(server.runs)
        for word in "abab":
            await drive(app, call({"q": word}))
        assert len(server.runs) == before + 4


def test_a_pause_ends_a_streak() -> None:
    """After `ttl_seconds` a call is a first one again."""
    now = [0.0]
    (request,) = requests({})
    one = caller(lambda: now[0], ttl_seconds=10)
    found = []
    for pause in (11, 11, 11, 9, 9):
        now[0] += pause
        found.append(make(one, request))
    assert found == [False, False, False, False, True]


@pytest.mark.parametrize("blocks", [0, 1, 3, 6])
def test_what_was_blocked_may_run_after_a_pause(blocks: int) -> None:
    """Nobody says when a person has spoken, who may want the same again."""
    now = [0.0]
    (request,) = requests({})
    one = caller(lambda: now[0])
    assert sum(make(one, request) for _ in range(3 + blocks)) == 1 + blocks
    now[0] += 301
    assert [make(one, request) for _ in range(3)] == [False, False, True]


def test_no_result_is_given_again_for_ever() -> None:
    """Who asks every two minutes gets no result that is older than five, however long that goes on."""
    now, said = [0.0], 0.0
    (request,) = requests({})
    one = caller(lambda: now[0])
    for _ in range(30):
        if make(one, request):
            assert now[0] - said <= 300
        else:
            said = now[0]
        now[0] += 120


def test_nor_while_other_calls_run() -> None:
    """A call that nothing new frees runs again, with a warning, before its result is too old."""
    now, said = [0.0], [0.0]
    search, clock_ = read_post(dumps([call_message({}, id_=1), call_message({}, id_=2, name="clock")])).calls
    one = caller(lambda: now[0])
    for _ in range(4):
        make(one, search)
    runs = 0
    for at in range(40):
        now[0] += 60
        assert not make(one, clock_, f"{at} o'clock")
        if make(one, search):
            assert now[0] - said[0] <= 300
        else:
            runs += 1
            said[0] = now[0]
    assert 0 < runs <= 20


@pytest.mark.slow
def test_the_memory_of_a_caller_is_bounded() -> None:
    """Whatever it calls and gets; its estimate goes with it."""
    one = caller()
    sizes = []
    for at in range(200):
        (request,) = requests({"at": at, "text": text_of(30_000)})
        make(one, request, f"{at} " + "y" * 50_000)
        sizes.append(one.size)
    assert max(sizes[140:]) == max(sizes)
    assert sizes[-1] < 1.02 * sizes[150]
    assert sizes[-1] < 5 * RESULTS_BYTES
    (request,) = requests({"at": 199, "text": text_of(30_000)})
    (pending,) = one.begin([request], b"")
    assert one.previous(pending) is not None


def test_calls_without_a_result_are_bounded() -> None:
    """Those that wait for one that may come later, too."""
    one = caller()
    empty = one.size
    for at in range(300):
        (request,) = requests({"at": at})
        (pending,) = one.begin([request], b"")
        one.await_later(pending)
    assert one.size < empty + 2_000_000


def test_who_takes_up_a_stream_reads_no_text_about_others() -> None:
    """A result that comes later goes to whoever asks for it: its notice quotes nothing that another client got."""
    one = caller(mode="warn", error_messages={"warning": "before: {previous_result}"})
    request, *_ = requests({})
    for _ in range(2):
        make(one, request, "secret")
    for reader in (b"", b"other"):
        (pending,) = one.begin([request], b"")
        one.await_later(pending)
        taken = one.take_awaited(request.key, reader)
        assert taken is not None
        told = one.settle(answer_of(request, "secret"), {request.key: taken}.get)
        assert (b"before: secret" in told, b"before: (unknown)" in told) == (not reader, bool(reader))


def test_the_callers_are_bounded() -> None:
    """In number, bytes and time."""
    seen, now = Observed(), [0.0]
    bus = Bus(seen)
    config = load_config({"tool_call_loop": {"max_sessions": 3, "ttl_seconds": 1}})
    callers = Callers(config, bus, lambda: now[0])
    lanes = [Lane(b"", f"s{at}", b"", "mcp-session-id") for at in range(5)]
    for lane in lanes:
        callers.of(lane)
    assert len(callers) == 3
    assert [event.limit for event in seen.of(LedgerDropped)] == ["max_sessions"] * 2
    assert callers.find(lanes[0]) is None
    assert callers.find(lanes[4]) is not None
    now[0] = 11.0
    assert callers.find(lanes[4]) is None
    callers.keep(callers.of(lanes[0]))
    assert len(callers) == 1
    callers.forget(lanes[0])
    assert (len(callers), callers.size) == (0, 0)


def test_callers_are_bounded_in_bytes() -> None:
    """By `max_ledger_bytes`."""
    callers = Callers(load_config({"tool_call_loop": {"max_ledger_bytes": 100_000}}), Bus())
    for at in range(50):
        known = callers.of(Lane(b"", f"s{at}", b"", "mcp-session-id"))
        make(known.caller, requests({"at": at})[0], "x" * 1000)
        callers.keep(known)
        assert callers.size <= 100_000
    assert 1 < len(callers) < 50


def test_responses_are_told_from_all_else() -> None:
    """Requests of the server, notifications and responses without an id of ours are none."""
    assert read_responses(b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"result":{}}}') == []
    assert read_responses(b'{"jsonrpc":"2.0","method":"notifications/error"}') == []
    assert read_responses(b'{"id":1,"result":3}') == []
    assert [one.key for one in read_responses(b'[{"id":"1","result":{}},{"id":1,"error":{}}]')] == [b'"1"', b"1"]
