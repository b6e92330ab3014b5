"""Call `on_loop` with each verdict before it is carried out; the callback may change it.

The callback runs in a task of its own. If it raises, is cancelled or takes too long, the exchange continues with the
policy's verdict. A callback that takes too long is cancelled, but the exchange does not wait for its end, because it
may shield itself or run in a thread.
"""

import asyncio
import inspect
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from callfuse.asgi.fail_open import Stage
from callfuse.boundary import Boundary, TaskBoundary
from callfuse.detect.registry import OF_REQUESTS
from callfuse.guard.judge import Judge
from callfuse.model import ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import CallbackFailed, Where
from callfuse.policy.ladder import OnLoopError, Verdict, rung_of_answer, would_have_warned
from callfuse.policy.rungs import Rung


@dataclass(frozen=True, slots=True)
class LoopEvent(Verdict):
    """A finding in a call, the rung to be carried out, and the place of the exchange. The argument of `on_loop`.

    `session` and `lane`: as in log lines, where long or unprintable ids are hashed. `source`: the header or field with
    the session's id; `fingerprint` if the client sends none.
    """

    session: str = ""
    source: str = ""
    lane: str = ""
    model: str = ""
    backend: str = ""
    dialect: str = ""

    @property
    def place(self) -> int:
        """The step on the ladder, from 1."""
        return self.step


OnLoop = Callable[[LoopEvent], Any]
"""A function, sync or async, called with each verdict before it is carried out. It returns None to keep the verdict,
`allow` (or True), or the name of another rung (False: `block`)."""


MESSAGE_CHARS = 300
"""Characters of a callback's error message that are logged."""
_HIDDEN_WORD = re.compile(r"\w{3,}")


class CallbackFault(OnLoopError):
    """The callback has raised. The message has type and place of its error, without any word of the call."""


MOST_OVERDUE: Final = 100
"""The most overdue runs of a callback that may still be running. With that many, it is not called any more."""


class Callback:
    """The host's `on_loop`, and its running calls that are `overdue`."""

    __slots__ = ("on_loop", "overdue")

    def __init__(self, on_loop: OnLoop) -> None:
        self.on_loop = on_loop
        self.overdue: set[asyncio.Task[None]] = set()

    def has_too_many_overdue(self) -> bool:
        """Whether too many runs are overdue for a new one to begin. Runs of a closed event loop do not count."""
        if len(self.overdue) >= MOST_OVERDUE:
            self.overdue.difference_update([task for task in self.overdue if task.get_loop().is_closed()])
        return len(self.overdue) >= MOST_OVERDUE


class _CallbackRun:
    """One run of the callback. `done`: it has returned `answer`. `fault`: the exception that it raised."""

    __slots__ = ("answer", "done", "fault")

    def __init__(self) -> None:
        self.answer: object = None
        self.done = False
        self.fault: CallbackFault | None = None

    async def run(self, on_loop: OnLoop, event: LoopEvent) -> None:
        """Call the callback, and await its answer if necessary. A cancellation ends only the task of this run."""
        boundary = TaskBoundary(anyio.get_cancelled_exc_class())
        with boundary:
            answer = on_loop(event)
            self.answer = await answer if inspect.isawaitable(answer) else answer
            self.done = True
        if boundary.error is not None:
            self.fault = CallbackFault(_describe(boundary.error, event))
            self.fault.__cause__ = boundary.error.with_traceback(None)

    async def run_within(self, limit_s: float, callback: Callback, event: LoopEvent) -> bool:
        """Run in a task of its own. If it has not ended after `limit_s` seconds, cancel it and return False.

        Under asyncio nothing waits for its end. In other event loops each task has a parent, which waits for it.
        """
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            with anyio.move_on_after(limit_s) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.run, callback.on_loop, event)
            return not limit.cancelled_caught
        task = asyncio.create_task(self.run(callback.on_loop, event))
        try:
            await asyncio.wait((task,), timeout=limit_s)
            if task.done() and not task.cancelled():
                task.result()  # raises errors for the host
            return task.done()
        finally:
            if not task.done():
                callback.overdue.add(task)
                task.add_done_callback(callback.overdue.discard)
                task.cancel()


def _describe(error: BaseException, event: LoopEvent) -> str:
    """Return type, message and place of a callback's error, for the log, with each word of the call masked."""
    message = ""
    with Boundary():  # its `__str__` may raise
        message = str(error)[:MESSAGE_CHARS]
    known = " ".join((event.call.id, event.call.text, event.finding.previous or ""))
    words = {word.casefold() for word in _HIDDEN_WORD.findall(known)}
    message = _HIDDEN_WORD.sub(lambda word: "***" if word[0].casefold() in words else word[0], message)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {message}, at {place.filename}:{place.lineno} in {place.name}"


class Review:
    """Passes the verdicts of one exchange to its callback.

    `notes`: by call, a warning for later requests because the callback asked for it; empty if the callback removed one.
    """

    __slots__ = ("_bus", "_callback", "_judge", "_where", "notes")

    def __init__(self, callback: Callback | None, judge: Judge, where: Where, bus: Bus) -> None:
        self.notes: list[tuple[ToolCall, str]] = []
        self._callback = callback
        self._judge = judge
        self._where = where
        self._bus = bus

    async def review(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return the verdicts after the callback; unchanged without a callback, or if a person lets the call pass."""
        callback = self._callback
        return verdicts if callback is None else [await self._review_one(verdict, callback) for verdict in verdicts]

    async def review_texts(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Review verdicts on the model's text. It has been sent, so a warning is the strictest possible action."""
        warning = self._judge.allowed(Rung.WARN)
        reviewed = await self.review(verdicts)
        return [replace(one, rung=warning) if one.withholds else one for one in reviewed]

    async def _review_one(self, verdict: Verdict, callback: Callback) -> Verdict:
        if verdict.rung is None:
            return verdict
        with Stage(self._report_failure):
            answer = await self._ask(callback, self._event(verdict))
            if answer is None:
                return verdict
            rung = rung_of_answer(answer)
            changed = replace(verdict, rung=None if rung is None else self._judge.allowed(rung))
            self._note_change(changed)
            return changed
        return verdict

    async def _ask(self, callback: Callback, event: LoopEvent) -> object:
        """Return the callback's answer. Raises OnLoopError if there is none within `callback_timeout_s`."""
        if callback.has_too_many_overdue():
            raise OnLoopError(f"it is not called, because {MOST_OVERDUE} earlier calls have not ended")
        run = _CallbackRun()
        limit_s = self._judge.settings.callback_timeout_s
        in_time = await run.run_within(limit_s, callback, event)
        if run.done and in_time:
            return run.answer
        if run.fault is not None:
            raise run.fault
        raise OnLoopError("it was cancelled" if in_time else f"no answer within {limit_s:g} s")

    def _note_change(self, verdict: Verdict) -> None:
        """Note that a callback gave a call a warning, or took one away: later requests derive warnings from history and
        ladder alone. Verdicts on a request or a text need no note, because they are reported with the answer."""
        if verdict.finding.part or verdict.finding.kind in OF_REQUESTS:
            return
        ladder = self._judge.ladder(verdict.call.full_name, verdict.finding)
        if not verdict.withholds and verdict.warns != would_have_warned(verdict.finding, ladder):
            self.notes.append((verdict.call, self._judge.warning(verdict) if verdict.warns else ""))

    def _event(self, verdict: Verdict) -> LoopEvent:
        return LoopEvent(
            verdict.call,
            verdict.finding,
            verdict.rung,
            verdict.step,
            verdict.first,
            finding_id=verdict.finding_id,
            **self._where._asdict(),
        )

    def _report_failure(self, error: Exception) -> None:
        self._bus.emit(CallbackFailed(error))
