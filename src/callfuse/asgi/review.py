"""The callback `on_loop`: it sees each verdict before that is carried out, and may change it.

Whatever it raises, and however long it takes, the exchange goes on with what policy has said.
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
from callfuse.policy.ladder import OnLoopError, Verdict, wanted, warned


class Where(NamedTuple):
    """Whose exchange it is, for logs and callbacks."""

    session: str
    source: str
    lane: str
    model: str
    backend: str
    dialect: str


@dataclass(frozen=True, slots=True)
class LoopEvent(Verdict):
    """What has been found in a call and is about to be done, and where.

    `session` and `lane` are what log lines call them: an id that is no plain one is hashed. `source` is where the
    session's id was found, `fingerprint` where the client sends none.
    """

    session: str = ""
    source: str = ""
    lane: str = ""
    model: str = ""
    backend: str = ""
    dialect: str = ""


OnLoop = Callable[[LoopEvent], Any]
"""Sees each verdict before it is carried out, sync or async. None keeps it; a rung's name, or `allow`, changes it."""


class Review:
    """Shows the verdicts of one exchange to its callback.

    `notes`: the texts that later requests are to carry, or (empty) not to carry, because the callback has changed
    whether a call is warned of.
    """

    __slots__ = ("_counts", "_judge", "_on_loop", "_where", "notes")

    def __init__(self, on_loop: OnLoop | None, judge: Judge, where: Where, counts: Counts) -> None:
        self.notes: list[tuple[ToolCall, str]] = []
        self._on_loop = on_loop
        self._judge = judge
        self._where = where
        self._counts = counts

    async def review(self, verdicts: list[Verdict]) -> list[Verdict]:
        """The verdicts as the callback leaves them."""
        on_loop = self._on_loop
        return verdicts if on_loop is None else [await self._review_one(verdict, on_loop) for verdict in verdicts]

    async def _review_one(self, verdict: Verdict, on_loop: OnLoop) -> Verdict:
        with Stage(self._report_failure):
            answer = await self._wait_for(on_loop(self._event(verdict)))
            if answer is None:
                return verdict
            rung = wanted(answer)
            changed = replace(verdict, rung=None if rung is None else self._judge.allowed(rung))
            self._note_change(changed)
            return changed
        return verdict

    async def _wait_for(self, answer: object) -> object:
        """What a callback says, at once or in time."""
        if not inspect.isawaitable(answer):
            return answer
        limit_s = self._judge.settings.callback_timeout_s
        with anyio.move_on_after(limit_s):
            return await answer
        raise OnLoopError(f"no answer within {limit_s:g} s")

    def _note_change(self, verdict: Verdict) -> None:
        """Requests are warned by what the ladder says: what a callback has said instead is kept with the call."""
        ladder = self._judge.ladder(verdict.call.full_name, verdict.finding.kind)
        if not verdict.withholds and verdict.warns != warned(verdict.finding, ladder):
            self.notes.append((verdict.call, self._judge.warning(verdict) if verdict.warns else ""))

    def _event(self, verdict: Verdict) -> LoopEvent:
        return LoopEvent(
            verdict.call, verdict.finding, verdict.rung, verdict.place, verdict.first, **self._where._asdict()
        )

    def _report_failure(self, error: Exception) -> None:
        self._counts.add("callback_errors")
        log.callback_failure(error)
