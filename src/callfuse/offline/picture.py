"""A run as a strip of cells, one a call: turns, rounds, which calls are the same, where something was found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from callfuse.model import Finding
from callfuse.offline.judging import Judged
from callfuse.offline.run import Run
from callfuse.offline.showing import ShownCall, ShownFinding, first_findings, short, shown_call

MAX_CELLS: Final = 500
"""Calls of one run that are drawn."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A call. `hue`: degrees, the same for the same call; None for one that comes only once."""

    call: ShownCall
    hue: int | None
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A run: its turns, each a list of rounds, each a list of cells; `more` calls were left out at the end."""

    run: str
    model: str
    success: bool | None
    findings: list[ShownFinding]
    turns: list[list[list[Cell]]]
    calls: int
    more: int


def picture_of(run: Run, calls: Sequence[Judged], rules: frozenset[str]) -> Picture:
    """The picture of a run."""
    counts = Counter(one.call.signature for one in calls)
    drawn = list(enumerate(calls[:MAX_CELLS], 1))
    turns = [
        [
            [_cell(one, number, counts, rules) for number, one in of_round]
            for _, of_round in groupby(of_turn, lambda numbered: numbered[1].round)
        ]
        for _, of_turn in groupby(drawn, lambda numbered: numbered[1].turn)
    ]
    findings = first_findings(run, calls, rules)
    more = len(calls) - len(drawn)
    return Picture(short(run.id), short(run.model), run.success, findings, turns, len(calls), more)


def _cell(one: Judged, number: int, counts: Counter[bytes], rules: frozenset[str]) -> Cell:
    finding = one.finding if one.is_of(rules) else None
    signature = one.call.signature
    hue = int.from_bytes(signature[:2], "big") % 360 if counts[signature] > 1 else None
    return Cell(shown_call(one.call, number, found=finding is not None), hue, finding)
