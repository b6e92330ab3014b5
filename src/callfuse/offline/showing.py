"""Calls as people are shown them: short, on one line, and without anything that could steer a terminal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from callfuse.model import PastCall
from callfuse.observe.printable import printable
from callfuse.offline.judging import Judged
from callfuse.offline.run import Run

LONGEST: Final = 120
"""Characters of a name, of arguments or of a result."""
BEFORE: Final = 5
AFTER: Final = 1
"""Calls that are shown around a finding's."""

_BLANK: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call in words; `number` counts from 1 in its run, `found` says that it is the one that was found."""

    number: int
    id: str
    tool: str
    arguments: str
    result: str
    found: bool = False


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """A finding with the calls around it. `done` is the rung that would have been taken."""

    run: str
    source: str
    model: str
    success: bool | None
    rule: str
    tool: str
    count: int
    threshold: int
    hard: bool
    done: str
    calls: tuple[ShownCall, ...]

    @property
    def summary(self) -> str:
        """It in a line: `repeat 3 of search (soft, from 3): steer`."""
        strength = "hard" if self.hard else "soft"
        return f"{self.rule} {self.count} of {self.tool} ({strength}, from {self.threshold}): {self.done}"


def first_findings(run: Run, calls: Sequence[Judged], rules: frozenset[str]) -> list[ShownFinding]:
    """The first finding of each rule in a run."""
    firsts: dict[str, int] = {}
    for at, one in enumerate(calls):
        for kind in one.kinds():
            if kind in rules:
                firsts.setdefault(kind, at)
    return [_shown(run, calls, at) for at in dict.fromkeys(firsts.values())]


def _shown(run: Run, calls: Sequence[Judged], at: int) -> ShownFinding:
    finding, verdict = calls[at].finding, calls[at].verdict
    if finding is None or verdict is None:
        raise ValueError(f"nothing was found in call {at}")
    around = range(max(0, at - BEFORE), min(len(calls), at + AFTER + 1))
    return ShownFinding(
        run=short(run.id),
        source=short(run.source),
        model=short(run.model),
        success=run.success,
        rule=" + ".join(calls[at].kinds()),
        tool=short(finding.tool),
        count=finding.count,
        threshold=finding.threshold,
        hard=finding.hard,
        done=str(verdict.rung or "nothing"),
        calls=tuple(shown_call(calls[place].call, place + 1, found=place == at) for place in around),
    )


def shown_call(past: PastCall, number: int, *, found: bool = False) -> ShownCall:
    """A call in words."""
    outcome = past.outcome
    result = short(outcome.text) if outcome else "(unknown)"
    return ShownCall(number, short(past.id), short(past.name), short(past.call.text), result, found)


def short(text: str) -> str:
    """A text on one line, without control characters, and not too long."""
    text = printable(_BLANK.sub(" ", text[: 4 * LONGEST]).strip())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def verdict_of(success: bool | None) -> str:
    """What became of a run, in a word."""
    return {True: "ok", False: "failed", None: "outcome unknown"}[success]
