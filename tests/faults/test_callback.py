"""An `on_loop` callback sees each finding before the action; whatever it does, the exchange goes on."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
import pytest

from callfuse import LoopEvent
from callfuse.asgi import review
from tests.support.asgi import Exchange, drive
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, every_dialect, given_log, reply, streamed_and_whole
from tests.support.model import Round
from tests.support.plain import RESULT, again, elsewhere, new_call, same_call, spin
from tests.support.scripted import ScriptedApp, play


def app_for(kit: DialectKit) -> ScriptedApp:
    """A model that loops, and changes course when it is asked again."""
    return play(reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True))


CANNOT_FORBID = "bedrock-converse"
"""The dialect in which no tool choice forbids tools: the rung after `force_text` is taken."""


async def asked(kit: DialectKit, app: ScriptedApp, on_loop: Callable[[Any], Any], ladder: str = "block") -> Exchange:
    """One exchange with a looping model and this callback."""
    guarded = guard(app, ladder, on_loop=on_loop, callback_timeout_s=0.05)
    exchange = await drive(guarded, ask(kit, spin(), stream=True))
    assert exchange.raised is None
    assert exchange.complete
    assert kit.faults(exchange.body) == []
    return exchange


def raises(_event: Any) -> str:
    """A callback with a bug."""
    raise RuntimeError("a bug in the callback")


async def raises_later(_event: Any) -> str:
    """An async callback with a bug."""
    await asyncio.sleep(0)
    raise RuntimeError("a bug in the callback")


def cancels(_event: Any) -> str:
    """A callback whose library gives up with a cancellation."""
    raise asyncio.CancelledError


async def cancels_later(_event: Any) -> str:
    """The same in a task of the library."""
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
    return "allow"


async def cancels_itself(_event: Any) -> str:
    """A callback that cancels the task in which it runs."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "allow"


def quotes(event: Any) -> str:
    """A callback whose error quotes the call."""
    raise KeyError(f"no query for {json.loads(event.call.text)['query']}")


class Unspeakable(Exception):
    """An error without a message."""

    def __str__(self) -> str:
        raise ValueError("not even this")


def cannot_be_said(_event: Any) -> str:
    """A callback whose error cannot be read."""
    raise Unspeakable


async def hangs(_event: Any) -> None:
    """A callback that waits for something that never comes."""
    await asyncio.Event().wait()


class Gone(BaseException):
    """A library's way out that is no `Exception`, as that of a test framework or of gevent."""


def leaves(_event: Any) -> str:
    """A callback that raises no `Exception`."""
    raise Gone("as with a broken helper")


async def leaves_later(_event: Any) -> str:
    """The same, later."""
    await asyncio.sleep(0)
    raise Gone("as with a broken helper")


def is_closed(_event: Any) -> str:
    """A callback in which a generator's end escapes."""
    raise GeneratorExit


async def leaves_in_a_group(_event: Any) -> str:
    """A callback with tasks of its own, one of which raises no `Exception`."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leaves_later(_event))
    return "allow"


async def swallows(_event: Any) -> str:
    """A callback that does not let itself be cancelled, for a while."""
    ended = asyncio.get_running_loop().time() + 30
    while asyncio.get_running_loop().time() < ended and not released.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
    return "allow"


async def shields(_event: Any) -> str:
    """The same, by a shield."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(released.wait, 30)
    return "allow"


async def sits_in_a_thread(_event: Any) -> str:
    """A callback that does its work in a thread, which nobody can cancel."""
    await anyio.to_thread.run_sync(released.wait, 30)
    return "allow"


released = threading.Event()
"""Ends the callbacks that cannot be cancelled."""


@pytest.fixture(autouse=True)
async def _released() -> AsyncIterator[None]:
    """Nothing goes on behind a test."""
    released.clear()
    yield
    released.set()
    if behind := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(behind)


def talks_nonsense(_event: Any) -> Any:
    """A callback that answers with no rung."""
    return {"what": "ever"}


@every_dialect
@pytest.mark.parametrize(
    "callback",
    [
        *(raises, raises_later, cancels, cancels_later, cancels_itself, hangs, talks_nonsense),
        *(leaves, leaves_later, is_closed, leaves_in_a_group, swallows, shields, sits_in_a_thread),
    ],
)
async def test_a_broken_callback_changes_nothing(kit: DialectKit, callback: Callable[[Any], Any]) -> None:
    """One that raises, outlasts `callback_timeout_s` or answers nonsense is logged, and the policy's action stands."""
    app = app_for(kit)
    with given_log() as log:
        exchange = await asked(kit, app, callback)
    assert b"call_first" not in exchange.body
    assert MARK.encode() in exchange.body
    assert len(app.heard) == 1
    assert any(level >= logging.WARNING and "Tool call loop detected" not in text for _, level, text in log)
    assert all(name.startswith("callfuse") for name, _, _ in log)
    assert not any("zebra" in text for _, _, text in log if "loop detected" not in text)


@pytest.mark.parametrize(
    ("callback", "why"),
    [
        (raises, f"RuntimeError: a bug in the callback, at {__file__}:"),
        (raises_later, f"RuntimeError: a bug in the callback, at {__file__}:"),
        (quotes, f"KeyError: 'no *** for *** ***', at {__file__}:"),
        (cannot_be_said, f"Unspeakable: , at {__file__}:"),
        (cancels, "it was cancelled"),
        (cancels_later, "it was cancelled"),
        (hangs, "no answer within 0.05 s"),
        (swallows, "no answer within 0.05 s"),
        (sits_in_a_thread, "no answer within 0.05 s"),
        (leaves, f"Gone: as with a broken helper, at {__file__}:"),
        (leaves_in_a_group, "BaseExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception), at "),
        (talks_nonsense, "its answer is dict; use None, True, False, 'allow' or a rung: observe, warn, steer, "
                         "force_text, escalate, block"),
        (lambda event: event, "its answer is LoopEvent; "),
        (lambda _event: "blok", "its answer is str; "),
    ],
)  # fmt: skip
async def test_what_is_logged_of_a_broken_callback(callback: Callable[[Any], Any], why: str) -> None:
    """What is wrong with it, and nothing of the call; the rest is at DEBUG."""
    kit = KITS[0]
    with given_log(logging.DEBUG) as log:
        await asked(kit, app_for(kit), callback)
    (line,) = [text for _, level, text in log if "on_loop" in text and level == logging.WARNING]
    assert line.startswith(f"on_loop failed, so the mode decides: {why}")
    assert "zebra" not in line
    assert ("callfuse", logging.DEBUG, "on_loop failed") in log


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize(
    ("ladder", "answer", "warned"),
    [
        ("block", "warn", True),
        ("observe at first", "warn", True),
        ("warn", "allow", False),
        ("warn", True, False),
        ("block", True, False),
        ("warn", "observe", False),
        ("warn", None, True),
    ],
)
async def test_what_a_callback_says_of_a_warning(
    kit: DialectKit, stream: bool, ladder: str, answer: str | bool | None, warned: bool
) -> None:
    """The result carries it, or none, in every later request."""
    answers = [again(text="", tag="first"), elsewhere()]
    app = play(*(reply(kit, one, stream=stream) for one in (*answers, *answers)))
    guarded = guard(app, ladder, on_loop=lambda _event: answer)
    history = spin()
    await drive(guarded, ask(kit, history, stream=stream))
    for call in (same_call("call_first"), new_call("call_second"), new_call("call_third")):
        history = history.and_then(Round((call,), (RESULT,)))
        await drive(guarded, ask(kit, history, stream=stream))
        assert (MARK.encode() in app.heard[-1].body) is warned


def sync(answer: str | bool | None) -> Callable[[Any], Any]:
    """A callback that decides at once."""
    return lambda _event: answer


def deferred(answer: str | bool | None) -> Callable[[Any], Any]:
    """A callback that decides a moment later."""

    async def decide(_event: Any) -> str | bool | None:
        await asyncio.sleep(0)
        return answer

    return decide


@every_dialect
@pytest.mark.parametrize("make", [sync, deferred])
@pytest.mark.parametrize(
    ("ladder", "answer", "delivered", "calls"),
    [
        ("block", None, None, 1),
        ("block", "allow", "call_first", 1),
        ("block", "observe", "call_first", 1),
        ("block", "warn", "call_first", 1),
        ("block", "steer", "call_second", 2),
        ("block", "force_text", "call_second", 2),
        ("escalate", "escalate", "call_second", 2),
        ("there and back", "force_text", "call_second", 2),
        ("observe", "block", None, 1),
        ("block", True, "call_first", 1),
        ("observe", False, None, 1),
        ("warn", "terminate", None, 1),
        ("warn", "block", None, 1),
        ("warn", "steer", "call_second", 2),
        ("chance_then_block", "block", None, 1),
        ("chance_then_block", None, "call_second", 2),
    ],
)
async def test_a_callback_decides(
    kit: DialectKit,
    make: Callable[[str | bool | None], Callable[[Any], Any]],
    ladder: str,
    answer: str | bool | None,
    delivered: str | None,
    calls: int,
) -> None:
    """None keeps the action, a rung changes it, `allow` or True lets the call go, False stops it."""
    if (ladder, answer, kit.name) == ("block", "force_text", CANNOT_FORBID):
        delivered, calls = None, 1
    app = app_for(kit)
    exchange = await asked(kit, app, make(answer), ladder)
    (view,) = kit.sdk(exchange.body, stream=True)
    assert [call.id for call in view.calls] == ([delivered] if delivered else [])
    assert len(app.heard) == calls


@every_dialect
async def test_a_callback_cannot_escalate_to_nobody(kit: DialectKit) -> None:
    """Without the setting `escalate_model` that answer is as good as nonsense."""
    app = app_for(kit)
    with given_log() as log:
        await asked(kit, app, sync("escalate"))
    assert len(app.heard) == 1
    assert any("tool_call_loop.escalate_model" in text for _, _, text in log)


@every_dialect
async def test_a_callback_may_climb_by_itself(kit: DialectKit) -> None:
    """Each time in a harder way; the same way again, for a call that comes again, is a block."""
    rungs = iter(["steer", "force_text", "force_text", "force_text"])
    scripts = [reply(kit, again(tag=tag), stream=True) for tag in ("first", "second", "third", "fourth")]
    app = play(*scripts)
    exchange = await asked(kit, app, lambda _event: next(rungs))
    assert len(app.heard) == 3 - (kit.name == CANNOT_FORBID)
    assert kit.sdk(exchange.body, stream=True)[0].calls == ()


@every_dialect
async def test_a_callback_sees_the_finding(kit: DialectKit, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, with the call and whose it is in the words of the log, before the client has the answer."""
    seen: list[LoopEvent] = []

    def note(event: LoopEvent) -> None:
        seen.append(event)

    with caplog.at_level(logging.INFO, "callfuse"):
        await asked(kit, app_for(kit), note)
    (event,) = seen
    assert (event.call.name, event.finding.kind, event.finding.count) == ("search", "repeat", 3)
    assert (event.rung, event.withholds, event.first) == ("block", True, True)
    assert event.description == "call 3 of search in a row with the same arguments, and nothing new came of it"
    assert event.suggestion.startswith("Try other arguments")
    (logged,) = [record.__dict__ for record in caplog.records if hasattr(record, "lane")]
    names = {"session": "session_id", "source": "session_source"}
    for name in ("session", "source", "lane", "model", "backend", "dialect"):
        assert getattr(event, name) == logged[names.get(name, name)] != ""


@every_dialect
async def test_a_callback_is_not_asked_without_a_finding(kit: DialectKit) -> None:
    """A healthy exchange does not reach it."""

    def never(event: Any) -> None:
        raise AssertionError(event)

    app = app_for(kit)
    with given_log() as log:
        exchange = await drive(guard(app, on_loop=never), ask(kit, spin(1), stream=True))
    assert exchange.body == app.replies[0].body
    assert log == []


async def test_few_callbacks_are_overdue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many do not end, no other is called; the policy's action stands."""
    monkeypatch.setattr(review, "MOST_OVERDUE", 2)
    calls: list[Any] = []

    async def count(event: Any) -> str:
        calls.append(event)
        return await swallows(event)

    kit = KITS[0]
    guarded = guard(play(reply(kit, again(), stream=True)), "block", on_loop=count, callback_timeout_s=0.05)
    with given_log() as log:
        for _ in range(4):
            exchange = await drive(guarded, ask(kit, spin(), stream=True))
            assert b"call_first" not in exchange.body
    assert len(calls) == 2
    assert any("it is not called, because 2 earlier calls have not ended" in text for _, _, text in log)


async def test_the_exchange_can_still_be_cancelled() -> None:
    """A callback that goes on does not keep its exchange."""
    kit = KITS[0]
    guarded = guard(app_for(kit), "block", on_loop=swallows, callback_timeout_s=20)
    task = asyncio.create_task(drive(guarded, ask(kit, spin(), stream=True)))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait((task,), timeout=10)
    assert task.done()


def test_what_ends_the_host_passes() -> None:
    """An interrupt in a callback is for the event loop."""

    def interrupts(_event: Any) -> str:
        raise KeyboardInterrupt

    kit = KITS[0]
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(drive(guard(app_for(kit), "block", on_loop=interrupts), ask(kit, spin(), stream=True)))
