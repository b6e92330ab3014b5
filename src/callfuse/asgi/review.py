"""Calls `on_loop` with each verdict before it is carried out; the callback may change it.

If the callback raises or takes too long, the exchange goes on with the policy's verdict.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import anyio

from callfuse.asgi.fail_open import Stage
from callfuse.guard.judge import Judge
from callfuse.model import ToolCall
from callfuse.observe import log
from callfuse.observe.counts import Counts
from callfuse.policy.ladder import OnLoopError, Verdict, rung_of_answer, would_have_warned


class Where(NamedTuple):
    """Where an exchange belongs, as logs and callbacks name it."""

    session: str
    source: str
    lane: str
    model: str
    backend: str
    dialect: str


@dataclass(frozen=True, slots=True)
class LoopEvent(Verdict):
    """A finding in a call, the rung about to be taken, and where it happens. Given to `on_loop`.

    `session` and `lane`: as in log lines, where ids that are not plain are hashed. `source`: the header or field that
    the session's id is from; `fingerprint` if the client sends none.
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
`allow`, or the name of another rung."""


class Review:
    """Passes the verdicts of one exchange to its callback.

    `notes`: by call, the warning that later requests carry because the callback asked for one; empty if it removed one.
    """

    __slots__ = ("_counts", "_judge", "_on_loop", "_where", "notes")

    def __init__(self, on_loop: OnLoop | None, judge: Judge, where: Where, counts: Counts) -> None:
        self.notes: list[tuple[ToolCall, str]] = []
        self._on_loop = on_loop
        self._judge = judge
        self._where = where
        self._counts = counts

    async def review(self, verdicts: list[Verdict]) -> list[Verdict]:
        """The verdicts after the callback; the same if there is none."""
        on_loop = self._on_loop
        return verdicts if on_loop is None else [await self._review_one(verdict, on_loop) for verdict in verdicts]

    async def _review_one(self, verdict: Verdict, on_loop: OnLoop) -> Verdict:
        with Stage(self._report_failure):
            answer = await self._wait_for(on_loop(self._event(verdict)))
            if answer is None:
                return verdict
            rung = rung_of_answer(answer)
            changed = replace(verdict, rung=None if rung is None else self._judge.allowed(rung))
            self._note_change(changed)
            return changed
        return verdict

    async def _wait_for(self, answer: object) -> object:
        """The callback's answer, awaited if need be. Raises OnLoopError after `callback_timeout_s`."""
        if not inspect.isawaitable(answer):
            return answer
        limit_s = self._judge.settings.callback_timeout_s
        with anyio.move_on_after(limit_s):
            return await answer
        raise OnLoopError(f"no answer within {limit_s:g} s")

    def _note_change(self, verdict: Verdict) -> None:
        """Later requests add warnings by the ladder, so a callback's different decision is kept as a note."""
        ladder = self._judge.ladder(verdict.call.full_name, verdict.finding.kind)
        if not verdict.withholds and verdict.warns != would_have_warned(verdict.finding, ladder):
            self.notes.append((verdict.call, self._judge.warning(verdict) if verdict.warns else ""))

    def _event(self, verdict: Verdict) -> LoopEvent:
        return LoopEvent(
            verdict.call, verdict.finding, verdict.rung, verdict.step, verdict.first, **self._where._asdict()
        )

    def _report_failure(self, error: Exception) -> None:
        self._counts.add("callback_errors")
        log.callback_failure(error)
