"""An error at any step of callfuse's own never reaches host or app, and the client gets its bytes.

In: exchanges of every kind (healthy, held, asked again, blocked; streamed and whole), in which one function raises each
time that it is called. Out: an answer that the bare app could have given, or one that callfuse ends by itself.
"""

import asyncio
import importlib
import logging
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi import opening, safe_guard
from callfuse.conversations.memory import MemoryLedger
from callfuse.guard.assembly import Assembly
from callfuse.guard.frames import AnswerFrames
from callfuse.guard.guard import Guard
from tests.support.asgi import Exchange, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, given_log, reply, streamed_and_whole
from tests.support.model import History
from tests.support.plain import again, elsewhere, new_call, saying, spin
from tests.support.scripted import Reply, ScriptedApp, play

FIRST = b"call_first"


class Bug(Exception):
    """A mistake in callfuse."""

    def __str__(self) -> str:
        raise RuntimeError("not even its message can be read")


PREPARING = (
    "asgi.headers.read",
    "asgi.overrides.without_overrides",
    "asgi.middleware.dialect_of",
    "asgi.prepare.loads",
    "asgi.prepare.lane_of",
    "conversations.identity.KnownHeaders.read",
    "asgi.prepare.credential_of",
    "asgi.commands.ChatCommands.find",
    "asgi.commands.ChatCommands.without_closed",
    "asgi.prepare.KeptRequest.__init__",
    "asgi.evidence.read_conversation",
    "asgi.evidence.Judge.__init__",
    "asgi.exchange.ExchangeEvidence.__init__",
    "asgi.exchange.Keeper.__init__",
    "conversations.memory.MemoryLedger.read",
    "guard.judge.Judge.any_finding",
    "guard.judge.Judge.any_hold",
)
"""What happens before the app is called: then the exchange passes as if callfuse were not there."""
BESIDE = (
    "asgi.exchange.notes_for",
    "asgi.exchange.RepairingApp.__init__",
    "asgi.keep.Keeper._keep",
    "asgi.keep.Keeper._report_verdict",
    "asgi.keep.log.finding",
    "asgi.evidence.ExchangeEvidence.after",
    "conversations.memory.MemoryLedger.write",
    "observe.log.logger.log",
    "observe.log.logger.warning",
    "observe.log.logger.error",
    "observe.log.logger.debug",
    "guard.record.ExchangeRecord.clear_reported",
)
"""What happens beside the answer: it goes as it would."""
WATCHING = (
    "asgi.exchange.AnswerDriver.__init__",
    "asgi.evidence.ExchangeEvidence.drop",
    "asgi.evidence.KeptRequest.stream_format",
    "asgi.evidence.KeptRequest.get",
    "asgi.driver.Intake.__init__",
    "asgi.driver.AnswerDriver._open",
    "asgi.answer.shape_of",
    "asgi.driver.is_success",
    "asgi.driver.AnswerDriver._make_guard",
)
GUARDING = (
    "asgi.exchange.Review.__init__",
    "asgi.driver.AnswerDriver._make_guard",
    "asgi.driver.Intake.__init__",
    "asgi.answer.shape_of",
    "asgi.driver.SafeGuard.__init__",
)
GUARD_BEFORE_ITS_VERDICT = ("feed", "finish", "verdicts")
GUARD_AFTER_ITS_VERDICT = ("apply", "begin_next_answer", "escalate")
GUARD_BESIDE = ("settle", "fail", "cut")


def raises(*_: Any, **__: Any) -> Any:
    """What every patched function does."""
    raise Bug


def break_step(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Have a function, a method or a property of callfuse raise."""
    parts = f"callfuse.{step}".split(".")
    at = len(parts)
    while True:
        at -= 1
        try:
            owner: Any = importlib.import_module(".".join(parts[:at]))
            break
        except ImportError:
            continue
    for name in parts[at:-1]:
        owner = getattr(owner, name)
    is_property = isinstance(owner.__dict__.get(parts[-1]) if isinstance(owner, type) else None, property)
    monkeypatch.setattr(owner, parts[-1], property(raises) if is_property else raises)


class Broken:
    """A guard of which one method raises."""

    def __init__(self, guard: Any, method: str) -> None:
        self._guard = guard
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return raises if name == self._method else getattr(self._guard, name)


def break_guard(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Have a method of each guard raise."""
    monkeypatch.setattr(safe_guard, "Guard", lambda *given, **more: Broken(Guard(*given, **more), method))


SOME = [kit for kit in KITS if kit.name in ("openai-chat", "anthropic", "openai-responses")]
some_dialects = pytest.mark.parametrize("kit", SOME, ids=lambda kit: kit.name)
HEALTHY, LOOPING = spin(1), spin(2)


def meet(
    kit: DialectKit, history: History, *answers: Any, stream: bool, ladder: str = "block", **more: Any
) -> tuple[Exchange, ScriptedApp, CallFuseMiddleware]:
    """One exchange: what the client got, what the app was asked, and the middleware."""
    app = play(*(reply(kit, answer, stream=stream) for answer in answers))
    guarded = CallFuseMiddleware(app, settings(ladder, **more))
    with given_log(logging.DEBUG):
        exchange = asyncio.run(drive(guarded, ask(kit, history, stream=stream)))
    assert exchange.raised is None
    assert exchange.complete
    return exchange, app, guarded


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("history", [HEALTHY, LOOPING], ids=["healthy", "looping"])
@pytest.mark.parametrize("step", PREPARING)
def test_an_error_before_the_answer_lets_everything_pass(
    kit: DialectKit, stream: bool, history: History, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """App and client see what they would see without callfuse."""
    break_step(monkeypatch, step)
    exchange, app, guarded = meet(kit, history, again(), stream=stream)
    assert exchange.body == app.replies[0].body
    assert exchange.headers == list(app.replies[0].headers)
    assert [heard.body for heard in app.heard] == [ask(kit, history, stream=stream).body]
    assert guarded.counts.of("fail_open") or "hold" in step or history is HEALTHY


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
@pytest.mark.parametrize("history", [HEALTHY, LOOPING], ids=["healthy", "looping"])
@pytest.mark.parametrize("step", BESIDE)
def test_an_error_beside_the_answer_changes_nothing_of_it(
    kit: DialectKit, stream: bool, history: History, ladder: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a log handler, the store or the notes fail, the answer is what it is without that."""
    right, app, _ = meet(kit, history, again(), elsewhere(), stream=stream, ladder=ladder)
    break_step(monkeypatch, step)
    exchange, broken, _ = meet(kit, history, again(), elsewhere(), stream=stream, ladder=ladder)
    assert exchange.body == right.body or exchange.body == app.replies[0].body
    assert exchange.body == right.body or step == "asgi.exchange.RepairingApp.__init__"
    assert len(broken.heard) <= len(app.heard)


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("step", WATCHING)
def test_an_error_while_watching_loses_nothing(
    kit: DialectKit, stream: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger may miss what the answer has brought; the client misses nothing."""
    break_step(monkeypatch, step)
    exchange, app, _ = meet(kit, HEALTHY, saying("Well.", new_call()), stream=stream)
    assert exchange.body == app.replies[0].body


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("method", ["feed", "settle"])
def test_an_assembly_that_breaks_loses_nothing(
    kit: DialectKit, stream: bool, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked again in this answer."""
    monkeypatch.setattr(opening, "Assembly", lambda *given, **more: Broken(Assembly(*given, **more), method))
    exchange, app, guarded = meet(kit, HEALTHY, saying("Well.", new_call()), stream=stream)
    assert exchange.body == app.replies[0].body
    assert guarded.counts.of("fail_open", "Bug while watching") == 1


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("step", GUARDING)
def test_without_a_guard_the_answer_passes(
    kit: DialectKit, stream: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be made is like one that is not wanted."""
    break_step(monkeypatch, step)
    exchange, app, guarded = meet(kit, LOOPING, again(), stream=stream)
    assert exchange.body == app.replies[0].body
    assert guarded.counts.of("fail_open") == 1


READ = PREPARING.index("asgi.prepare.KeptRequest.__init__") + 1
"""From where on a request has been read, so that callfuse can answer it."""


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("step", [one for one in (*PREPARING[READ:], *GUARDING) if "Ledger" not in one])
def test_before_the_answer_fail_closed_blocks(
    kit: DialectKit, stream: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step breaks, no call leaves that could not be judged: the client reads why."""
    break_step(monkeypatch, step)
    exchange, _, guarded = meet(kit, LOOPING, again(), stream=stream, fail_closed=True)
    assert exchange.status == 200
    assert FIRST not in exchange.body
    (view,) = kit.sdk(exchange.body, stream=stream)
    assert MARK in view.text
    assert view.finish == kit.stopped
    assert guarded.counts.of("fail_open") >= 1
    watched, app, _ = meet(kit, LOOPING, again(), stream=stream, ladder="observe", fail_closed=True)
    assert watched.body == app.replies[0].body


def cut_up(kit: DialectKit, size: int) -> list[Reply]:
    """The looping answer in chunks of a size, and the one after it."""
    whole, other = reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True)
    body = whole.body
    return [whole.cut(tuple(body[at : at + size] for at in range(0, len(body), size))), other]


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("method", GUARD_BEFORE_ITS_VERDICT)
def test_a_guard_that_breaks_before_its_verdict_loses_no_byte(
    kit: DialectKit, stream: bool, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits leaves as it came, and the rest passes; under `fail_closed` no call does."""
    break_guard(monkeypatch, method)
    exchange, app, guarded = meet(kit, LOOPING, again(), stream=stream)
    if method != "finish" or not stream:  # a stream has had its verdict by then
        assert exchange.body == app.replies[0].body
    assert guarded.counts.of("fail_open", "Bug while guarding") == 1
    closed, _, _ = meet(kit, LOOPING, again(), stream=stream, fail_closed=True)
    assert FIRST not in closed.body


@some_dialects
@pytest.mark.parametrize("size", [1, 7, 50, 1000])
@pytest.mark.parametrize("at", range(1, 60, 3))
def test_a_guard_that_breaks_at_any_chunk_loses_no_byte(
    kit: DialectKit, size: int, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the answer is cut, and whatever waits by then: the k-th chunk is the one that breaks it."""
    answer, _ = cut_up(kit, size)

    class BreaksLate(Broken):
        left = at

        def __getattr__(self, name: str) -> Any:
            if name == "feed":
                self.left -= 1
                return raises if self.left == 0 else self._guard.feed
            return getattr(self._guard, name)

    monkeypatch.setattr(safe_guard, "Guard", lambda *given, **more: BreaksLate(Guard(*given, **more), "feed"))
    with given_log():
        guarded = CallFuseMiddleware(play(answer), settings("block"))
        exchange = asyncio.run(drive(guarded, ask(kit, LOOPING, stream=True)))
    assert exchange.raised is None
    assert exchange.complete
    assert exchange.body == answer.body or (MARK.encode() in exchange.body and FIRST not in exchange.body)


@some_dialects
@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize("at", range(1, 60, 6))
@pytest.mark.parametrize("step", ["_reads_at_once", "read_on", "_read", "_process"])
@pytest.mark.parametrize("lets_go", [True, False])
def test_a_guard_that_breaks_within_any_chunk_loses_no_byte(
    kit: DialectKit, size: int, at: int, step: str, lets_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The k-th time that it does something with a chunk. Where it cannot even let go, the answer may break off
    after its verdict."""
    answer, _ = cut_up(kit, size)
    left, does = at, getattr(AnswerFrames, step)

    def breaks_late(*given: Any) -> Any:
        nonlocal left
        left -= 1
        return does(*given) if left else raises()

    monkeypatch.setattr(AnswerFrames, step, breaks_late)
    if not lets_go:
        monkeypatch.setattr(AnswerFrames, "_let_go", raises)
        monkeypatch.setattr(AnswerFrames, "_salvage", raises)
    with given_log():
        guarded = CallFuseMiddleware(play(answer), settings("block"))
        exchange = asyncio.run(drive(guarded, ask(kit, LOOPING, stream=True)))
    assert exchange.raised is None
    assert exchange.complete
    if exchange.body != answer.body:
        assert FIRST not in exchange.body
        assert MARK.encode() in exchange.body or not lets_go


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
@pytest.mark.parametrize("method", GUARD_AFTER_ITS_VERDICT)
def test_a_guard_that_breaks_after_its_verdict_leaks_no_call(
    kit: DialectKit, stream: bool, ladder: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next rung is taken, or the answer ends."""
    break_guard(monkeypatch, method)
    exchange, _, _ = meet(kit, LOOPING, again(), again(tag="second"), stream=stream, ladder=ladder)
    assert FIRST not in exchange.body


@some_dialects
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
@pytest.mark.parametrize("method", GUARD_BESIDE)
def test_a_guard_that_breaks_when_all_is_done_changes_nothing(
    kit: DialectKit, stream: bool, ladder: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is poorer, and nothing else."""
    right, _, _ = meet(kit, LOOPING, again(), elsewhere(), stream=stream, ladder=ladder)
    break_guard(monkeypatch, method)
    exchange, _, _ = meet(kit, LOOPING, again(), elsewhere(), stream=stream, ladder=ladder)
    assert exchange.body == right.body


@some_dialects
def test_a_guard_that_cannot_be_cut_loses_no_byte(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream breaks off in a hold, and so does the guard: what has come leaves, and the host sees the error."""
    break_guard(monkeypatch, "cut")
    whole = reply(kit, again(), stream=True).body
    half = Reply((whole[: whole.index(FIRST) + 40],), raises=ConnectionError("gone"))
    with given_log():
        exchange = asyncio.run(drive(CallFuseMiddleware(play(half), settings("block")), ask(kit, LOOPING, stream=True)))
    assert isinstance(exchange.raised, ConnectionError)
    assert exchange.body == half.body


@some_dialects
@pytest.mark.parametrize("step", ["_event", "_note_change"])
def test_a_review_that_breaks_leaves_policy_alone(kit: DialectKit, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a callback that raises does."""
    break_step(monkeypatch, f"asgi.review.Review.{step}")
    app = play(reply(kit, again(), stream=True))
    guarded = CallFuseMiddleware(app, settings("block"), on_loop=lambda _event: "allow")
    with given_log():
        exchange = asyncio.run(drive(guarded, ask(kit, LOOPING, stream=True)))
    assert exchange.raised is None
    assert FIRST not in exchange.body
    assert guarded.counts.of("callback_errors") == 1


@pytest.mark.parametrize("history", [HEALTHY, LOOPING], ids=["healthy", "looping"])
async def test_an_app_that_is_cancelled_by_itself_hangs_nobody(history: History) -> None:
    """A cancellation that comes from within the app reaches the host, as it would without callfuse."""

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        raise asyncio.CancelledError

    with given_log(), pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(drive(CallFuseMiddleware(app, settings()), ask(KITS[0], history, stream=True)), 5)


async def test_a_store_that_raises_at_every_turn() -> None:
    """Reading, writing, and the session: each exchange passes, or is guarded by what its request shows."""

    class Down(MemoryLedger):
        async def write(self, *_: Any) -> None:
            raise ConnectionError("down")

    app = play(reply(KITS[0], again(), stream=True))
    guarded = CallFuseMiddleware(app, settings(), store=Down(max_lanes=1, ttl_s=1.0))
    with given_log() as log:
        for _ in range(3):
            exchange = await drive(guarded, ask(KITS[0], LOOPING, stream=True))
            assert exchange.raised is None
            assert FIRST not in exchange.body
    assert guarded.counts.of("fail_open", "ConnectionError while keeping") == 3
    assert len([text for _, level, text in log if level == logging.ERROR]) == 1
