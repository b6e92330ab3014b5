"""What happens in an exchange is told once, as events, whatever becomes of the exchange."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.observe.events import (
    ENDINGS,
    MODES,
    ActionTaken,
    AskFailed,
    CallSeen,
    Event,
    ExchangeEnded,
    FailedOpen,
    FindingSeen,
    FuseBlown,
    HoldBegan,
    HoldEnded,
)
from tests.support.asgi import JSON_REQUEST, Receive, Request, Scope, Send, Watch, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, reply, streamed_and_whole
from tests.support.model import History, User
from tests.support.observing import Observed, observed
from tests.support.plain import again, elsewhere, once, same_call, saying, spin
from tests.support.scripted import Reply, ScriptedApp, play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
ANTHROPIC = next(kit for kit in KITS if kit.name == "anthropic")
TALK = saying("Good day.", tag="talk")


def told(exchange: ExchangeEnded) -> tuple[str, str, str, int, int, str]:
    """What an exchange came to."""
    assert exchange.mode in MODES
    assert exchange.ending in ENDINGS
    assert 0 <= exchange.held_seconds <= exchange.seconds
    return exchange.mode, exchange.ending, exchange.cause, exchange.status, exchange.calls, exchange.action


@every_dialect
@streamed_and_whole
async def test_a_healthy_exchange(kit: DialectKit, stream: bool) -> None:
    """One event for it and one for its call, and that is all."""
    guarded, seen = observed(play(reply(kit, elsewhere(), stream=stream)))
    await drive(guarded, ask(kit, spin(1), stream=stream))
    assert seen.names() == ["call", "exchange"]
    ended = seen.one(ExchangeEnded)
    assert told(ended) == ("watched", "complete", "", 200, 1, "")
    assert ended.guarded
    assert (ended.where.dialect, bool(ended.where.session)) == (guarded_dialect(kit), True)
    call = seen.one(CallSeen)
    assert (call.call.name, call.action, call.where) == ("search", "none", ended.where)


def guarded_dialect(kit: DialectKit) -> str:
    """The name of a kit's dialect: kits may show one dialect in several forms."""
    from callfuse.dialects import dialect_of

    found = dialect_of(ask(kit, spin(1), stream=True).path)
    assert found is not None
    return found.name


@every_dialect
async def test_text_alone_is_one_event(kit: DialectKit) -> None:
    """However many chunks it has."""
    guarded, seen = observed(play(framewise(kit, TALK)))
    await drive(guarded, ask(kit, spin(1), stream=True))
    assert seen.names() == ["exchange"]
    assert told(seen.one(ExchangeEnded)) == ("watched", "complete", "", 200, 0, "")


@every_dialect
async def test_a_block(kit: DialectKit) -> None:
    """The hold, the call, the finding and what was done, under one id."""
    guarded, seen = observed(play(framewise(kit, again())))
    await drive(guarded, ask(kit, spin(), stream=True))
    assert sorted(seen.names()) == ["action", "call", "decided", "exchange", "finding", "hold", "hold_began", "loop"]
    assert seen.names()[-1] == "exchange"
    assert told(seen.one(ExchangeEnded)) == ("guarded", "complete", "", 200, 1, "block")
    finding, action, hold = seen.one(FindingSeen), seen.one(ActionTaken), seen.one(HoldEnded)
    assert finding.finding_id == action.finding_id != ""
    assert (finding.action, finding.again, action.rung, action.first) == ("block", False, "block", True)
    assert hold.how == "withheld"
    assert hold.size > 0
    assert hold.seconds == seen.one(ExchangeEnded).held_seconds > 0


@every_dialect
async def test_a_whole_answer_waits_anyway(kit: DialectKit) -> None:
    """So that is no hold; the finding is told as well."""
    guarded, seen = observed(play(reply(kit, again(), stream=False)))
    await drive(guarded, ask(kit, spin(), stream=False))
    assert seen.names() == ["decided", "call", "finding", "loop", "action", "exchange"]
    assert told(seen.one(ExchangeEnded)) == ("guarded", "complete", "", 200, 1, "block")


@every_dialect
@streamed_and_whole
async def test_a_steer_is_one_hold(kit: DialectKit, stream: bool) -> None:
    """From the first byte that waited until bytes of the other answer leave."""
    replies = [framewise(kit, one) if stream else reply(kit, one, stream=False) for one in (again(), TALK)]
    guarded, seen = observed(play(*replies), "steer")
    await drive(guarded, ask(kit, spin(), stream=stream))
    hold = seen.one(HoldEnded)
    assert hold.how == "withheld"
    assert seen.one(HoldBegan).where == hold.where
    assert [call.action for call in seen.of(CallSeen)] == ["steer"]
    assert told(seen.one(ExchangeEnded)) == ("guarded", "complete", "", 200, 1, "steer")
    assert [one.rung for one in seen.of(ActionTaken)] == ["steer"]


@every_dialect
@pytest.mark.parametrize("history", [spin(1), spin(2)], ids=["too many", "looping"])
async def test_a_hold_that_is_cut_is_one_hold(kit: DialectKit, history: History) -> None:
    """The app breaks off while calls wait, from the start of the answer on or from a call on."""
    broken = framewise(kit, saying("Well.", *(same_call(f"call_{at}Q") for at in range(4))))
    broken = replace(broken, chunks=broken.chunks[:-2], raises=ConnectionError())
    guarded, seen = observed(play(broken))
    await drive(guarded, ask(kit, history, stream=True))
    assert seen.one(HoldEnded).how == "cut"
    assert seen.one(HoldBegan).where == seen.one(HoldEnded).where


async def test_a_finding_is_told_when_it_is_found() -> None:
    """Not at the end of the answer, which may go on for minutes."""
    at_finding: list[int] = []
    app = play(framewise(CHAT, again()), framewise(CHAT, elsewhere()))
    guarded, seen = observed(app, "steer")
    seen.on_event = lambda event: at_finding.append(len(app.heard)) if isinstance(event, FindingSeen) else None
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert at_finding == [1]
    assert len(app.heard) == 2


@streamed_and_whole
async def test_a_rung_that_fails_is_the_same_finding(stream: bool) -> None:
    """The next rung tells it again, under its id."""
    first = reply(CHAT, again(), stream=stream)
    guarded, seen = observed(play(first, Reply((b"{}",), 500)), "chance_then_block")
    await drive(guarded, ask(CHAT, spin(), stream=stream))
    findings = seen.of(FindingSeen)
    assert [(one.action, one.again) for one in findings] == [("steer", False), ("block", True)]
    assert len({one.finding_id for one in findings}) == 1
    assert [one.rung for one in seen.of(ActionTaken)] == ["steer", "block"]
    assert seen.one(AskFailed).cause == "it answered with status 500"
    assert seen.one(ExchangeEnded).action == "block"
    assert guarded.counts.of("findings", "steer") == guarded.counts.of("findings", "block") == 1


async def test_the_callback_sees_the_id() -> None:
    """The one by which the event names the finding; each finding has its own."""
    ids: list[str] = []
    guarded, seen = observed(play(framewise(CHAT, again())), on_loop=lambda found: ids.append(found.finding_id))
    for _ in range(2):
        await drive(guarded, ask(CHAT, spin(), stream=True))
    assert ids == [one.finding_id for one in seen.of(FindingSeen)]
    assert len(set(ids)) == 2
    assert all(len(one) == 16 for one in ids)


async def test_an_innocent_hold_is_released() -> None:
    """Its call turned out to be another one."""
    guarded, seen = observed(play(framewise(CHAT, elsewhere())))
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert seen.one(HoldEnded).how == "released"
    assert told(seen.one(ExchangeEnded)) == ("guarded", "complete", "", 200, 1, "")


async def test_a_hold_that_is_too_long_has_failed() -> None:
    """The call goes unjudged, so the exchange was not guarded."""
    answer = saying("Wait.", *again().choices[0][1:])
    guarded, seen = observed(play(framewise(CHAT, answer)), max_held_bytes=900)
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert seen.one(HoldEnded).how == "failed"
    ended = seen.one(ExchangeEnded)
    assert (ended.mode, ended.cause, ended.guarded) == ("guarded", "max_held_bytes", False)


async def test_a_hold_that_lasts_too_long_has_failed() -> None:
    """The timer ends it, and the exchange goes on."""
    watch, listed = Watch(), CHAT.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)

    async def gate(at: int) -> None:
        if at == last:
            await watch.until(b"call_first")

    app = play(Reply(tuple(frame.raw for frame in listed), gate=gate))
    guarded, seen = observed(app, max_hold_s=0.01)
    await drive(guarded, ask(CHAT, spin(), stream=True), on_bytes=watch.feed)
    assert seen.one(HoldEnded).how == "failed"
    assert seen.one(ExchangeEnded).cause == "max_hold_s"


@pytest.mark.parametrize("limit", [{"max_hold_s": 0.01}, {"max_held_bytes": 900}], ids=["seconds", "bytes"])
async def test_a_hold_that_a_limit_releases_is_told_at_once(limit: dict[str, Any]) -> None:
    """Not at the end of the answer, which may be minutes away; and once, where the host cancels the exchange then."""
    watch, is_out = Watch(), asyncio.Event()
    listed = CHAT.frames(saying("Wait.", *again().choices[0][1:]))

    async def gate(at: int) -> None:
        if at == len(listed) - 1:
            await watch.until(b"call_first")
            is_out.set()
            await asyncio.Event().wait()

    app = play(Reply(tuple(frame.raw for frame in listed), gate=gate))
    guarded, seen = observed(app, **limit)
    exchange = asyncio.create_task(drive(guarded, ask(CHAT, spin(), stream=True), on_bytes=watch.feed))
    await is_out.wait()
    assert seen.one(FailedOpen).cause == next(iter(limit))
    assert seen.names().index("fail_open") == seen.names().index("hold") + 1
    exchange.cancel()
    await asyncio.wait([exchange])
    assert seen.one(FailedOpen).cause == seen.one(ExchangeEnded).cause == next(iter(limit))


async def test_a_cancelled_exchange_tells_what_went_unjudged() -> None:
    """Also what has failed without a hold."""
    is_out = asyncio.Event()
    listed = CHAT.frames(saying("Wait.", *again().choices[0][1:]))

    async def gate(at: int) -> None:
        if at == len(listed) - 1:
            is_out.set()
            await asyncio.Event().wait()

    app = play(Reply(tuple(frame.raw for frame in listed), gate=gate))
    guarded, seen = observed(app, max_held_bytes=1)
    exchange = asyncio.create_task(drive(guarded, ask(CHAT, spin(), stream=True)))
    await is_out.wait()
    exchange.cancel()
    await asyncio.wait([exchange])
    assert seen.one(FailedOpen).cause == "max_held_bytes"


async def test_a_client_that_leaves_during_a_hold() -> None:
    """Its exchange is told, and so is the end of the hold."""
    leave, watch = asyncio.Event(), Watch()
    listed = CHAT.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)
    app = play()

    async def gate(at: int) -> None:
        if at == last:
            leave.set()
            assert app.left
            await app.left.wait()

    app.replies, app.left = (Reply(tuple(frame.raw for frame in listed), gate=gate),), asyncio.Event()
    guarded, seen = observed(app)
    await drive(guarded, ask(CHAT, spin(), stream=True), leave=leave, on_bytes=watch.feed)
    assert seen.one(ExchangeEnded).ending == "client gone"
    assert len(seen.of(HoldBegan)) == len(seen.of(HoldEnded)) == 1


@pytest.mark.parametrize("ladder", ["warn", "block", "steer"])
@streamed_and_whole
async def test_a_server_that_tells_the_end_as_a_disconnect(ladder: str, stream: bool) -> None:
    """As uvicorn does to an app that listens beside its answer. The client has got all of it, and has not left."""

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                continue

        listener = asyncio.create_task(listen())
        await app(scope, receive, send)
        await listener

    app = play(*(reply(CHAT, one, stream=stream) for one in (again(), TALK)))
    guarded, seen = observed(listening, ladder)
    exchange = await drive(guarded, ask(CHAT, spin(), stream=stream))
    assert exchange.complete
    assert seen.one(ExchangeEnded).ending == "complete"


@pytest.mark.parametrize("history", [spin(1), spin()], ids=["healthy", "looping"])
@pytest.mark.parametrize("chunks", [0, 1, 3])
async def test_an_app_that_raises(history: History, chunks: int) -> None:
    """The host sees its error, and the exchange is told."""
    answer = replace(Reply(framewise(CHAT, again()).chunks[:chunks]), raises=OSError("gone"))
    guarded, seen = observed(play(answer))
    exchange = await drive(guarded, ask(CHAT, history, stream=True))
    assert isinstance(exchange.raised, OSError)
    ended = seen.one(ExchangeEnded)
    assert (ended.ending, ended.status) == ("error", 200)
    assert len(seen.of(HoldBegan)) == len(seen.of(HoldEnded))


async def test_an_app_that_raises_at_once() -> None:
    """No answer has begun, so there is no status."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise LookupError

    guarded, seen = observed(app)
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert told(seen.one(ExchangeEnded)) == ("guarded", "error", "", 0, 0, "")


async def test_a_task_that_is_cancelled() -> None:
    """As by a server that shuts down: the exchange is told."""
    begun = asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in framewise(CHAT, again()).chunks[:4]:
            if not begun.is_set():
                headers = [(b"content-type", b"text/event-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            begun.set()
            await send({"type": "http.response.body", "body": message, "more_body": True})
        await asyncio.Event().wait()

    guarded, seen = observed(app)
    task = asyncio.create_task(drive(guarded, ask(CHAT, spin(), stream=True)))
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert seen.one(ExchangeEnded).ending == "error"
    assert len(seen.of(HoldBegan)) == len(seen.of(HoldEnded))


async def test_an_answer_that_breaks_off() -> None:
    """Before its end, without an error: what was held is let go."""
    chunks = framewise(CHAT, again()).chunks

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def endless(message: Any) -> None:
            if message.get("more_body", True):
                await send(message)

        await play(Reply(chunks[:4]))(scope, receive, endless)

    guarded, seen = observed(app)
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert seen.one(ExchangeEnded).ending == "broke off"


@pytest.mark.parametrize("history", [spin(1), spin()], ids=["healthy", "looping"])
async def test_an_error_of_the_vendor(history: History) -> None:
    """There is nothing to guard in it, but the exchange is."""
    guarded, seen = observed(play(Reply((b"{}",), 529, ((b"content-type", b"application/json"),))))
    await drive(guarded, ask(CHAT, history, stream=True))
    ended = seen.one(ExchangeEnded)
    assert (ended.status, ended.calls, ended.guarded) == (529, 0, True)


def body(**more: Any) -> bytes:
    """A request's body with other fields."""
    return json.dumps(json.loads(ask(CHAT, spin(), stream=True).body) | more).encode()


PASSED = [
    (b"no json", {}, "request not JSON"),
    (b'{"model": "m"}', {}, "other body"),
    (body(tools=[]), {}, "no tools"),
    (body(max_tokens=1), {}, "no tools"),
    (body(), {"max_request_bytes": 10}, "max_request_bytes"),
    (body(), {"enabled": False}, "disabled"),
    (body(), {"models": {"openai:*": {"enabled": False}}}, "disabled"),
]


@pytest.mark.parametrize(("content", "more", "cause"), PASSED, ids=[cause for *_, cause in PASSED])
async def test_what_passes_is_told_with_its_cause(content: bytes, more: dict[str, Any], cause: str) -> None:
    """Its status, too, unless the guard is switched off for all: then nobody looks at any answer."""
    guarded, seen = observed(play(reply(CHAT, again(), stream=True)), **more)
    await drive(guarded, Request("/v1/chat/completions", content))
    ended = seen.one(ExchangeEnded)
    status = 0 if more == {"enabled": False} else 200
    assert told(ended) == ("passed", "complete", cause, status, 0, "")
    assert not ended.guarded
    assert (ended.where.dialect, ended.where.backend) == ("openai-chat", "openai")


@pytest.mark.parametrize("history", [spin(1), spin()], ids=["healthy", "looping"])
async def test_an_answer_that_cannot_be_read(history: History) -> None:
    """Has a cause, whether it was to be watched or guarded."""
    answer = Reply((b"<p>",), headers=((b"content-type", b"text/html"),))
    guarded, seen = observed(play(answer))
    await drive(guarded, ask(CHAT, history, stream=True))
    assert seen.one(ExchangeEnded).cause == "content-type"
    assert not seen.one(ExchangeEnded).guarded


async def test_an_error_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange passes, and says so."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError

    monkeypatch.setattr("callfuse.asgi.evidence.read_conversation", fail)
    guarded, seen = observed(play(reply(CHAT, again(), stream=True)))
    await drive(guarded, ask(CHAT, spin(), stream=True))
    assert told(seen.one(ExchangeEnded)) == ("passed", "complete", "error", 200, 0, "")


async def test_a_command_is_answered_by_callfuse() -> None:
    """The model is not asked."""
    guarded, seen = observed(play(reply(CHAT, again(), stream=True)))
    await drive(guarded, ask(CHAT, History((User("!/status"),)), stream=True))
    assert told(seen.one(ExchangeEnded)) == ("answered", "complete", "", 200, 0, "command")
    assert seen.names() == ["commands", "exchange"]


async def test_a_blown_fuse_is_answered_by_callfuse() -> None:
    """After so many blocks in a row."""
    guarded, seen = observed(play(reply(CHAT, again(), stream=True)), blow_after=1)
    for _ in range(2):
        await drive(guarded, ask(CHAT, spin(), stream=True))
    assert told(seen.of(ExchangeEnded)[-1]) == ("answered", "complete", "", 200, 0, "blown")
    assert seen.one(FuseBlown).blocks == 1


@pytest.mark.parametrize("request_", [Request("/v1/models", method="GET"), Request("/v1/embeddings", b"{}")])
async def test_other_paths_are_not_told(request_: Request) -> None:
    """Nothing happens there."""
    guarded, seen = observed(play(reply(CHAT, again(), stream=False)))
    await drive(guarded, request_)
    assert seen.events == []


@every_dialect
async def test_a_sink_that_fails_changes_no_byte(kit: DialectKit) -> None:
    """Whatever it is told."""

    class Broken:
        def take(self, event: Event) -> None:
            raise RuntimeError(event.name)

    bodies = []
    for sinks in ([], [Broken()]):
        guarded = CallFuseMiddleware(play(framewise(kit, again()), framewise(kit, elsewhere())), settings("steer"))
        for sink in sinks:
            guarded.bus.add(sink)
        exchange = await drive(guarded, ask(kit, spin(), stream=True))
        assert exchange.raised is None
        bodies.append(exchange.body)
    assert bodies[0] == bodies[1]


async def test_sessions_and_models_are_told() -> None:
    """As the client names them."""
    headers = (*JSON_REQUEST, (b"x-session-id", b"abc-1"))
    guarded, seen = observed(play(reply(ANTHROPIC, elsewhere(), stream=True)))
    await drive(guarded, ask(ANTHROPIC, spin(1), stream=True, headers=headers))
    where = seen.one(ExchangeEnded).where
    assert (where.session, where.source, where.backend) == ("abc-1", "x-session-id", "anthropic")
    assert where.model
    assert where.lane


async def test_many_exchanges_are_told_once_each() -> None:
    """Also side by side."""
    app = ScriptedApp((framewise(CHAT, elsewhere()),))
    guarded, seen = observed(app)
    await asyncio.gather(*(drive(guarded, ask(CHAT, spin(1), stream=True)) for _ in range(20)))
    assert len(seen.of(ExchangeEnded)) == len(seen.of(CallSeen)) == 20


def test_observed_is_empty_at_first() -> None:
    """Making a middleware tells nothing."""
    _, seen = observed(play())
    assert seen == Observed()


@every_dialect
@streamed_and_whole
async def test_an_answer_that_is_handed_over(kit: DialectKit, stream: bool) -> None:
    """It began healthy, and one of its calls is one too many: told as any guarded one, and each call once."""
    answer = saying("Thrice.", *(same_call(f"call_{letter}") for letter in "abc"))
    app = play(framewise(kit, answer) if stream else reply(kit, answer, stream=False))
    fuse, seen = observed(app)
    await drive(fuse, ask(kit, once(same_call()), stream=stream, headers=JSON_REQUEST))
    ended = seen.one(ExchangeEnded)
    assert (ended.mode, ended.ending, ended.status, ended.calls, ended.action) == (
        "guarded",
        "complete",
        200,
        3,
        "block",
    )
    assert sorted(one.action for one in seen.of(CallSeen)) == ["block", "none", "none"]
    assert [one.action for one in seen.of(FindingSeen)] == ["block"]
    assert [one.how for one in seen.of(HoldEnded)] == ["withheld"] * len(seen.of(HoldBegan))
    assert bool(seen.of(HoldBegan)) == stream
