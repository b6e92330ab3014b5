"""Prepare the data of reports for people: findings with the calls around them, and pictures of whole runs.

Texts from records are cut, put on one line, and stripped of control characters.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from callfuse.model import Finding, PastCall
from callfuse.model.outcomes import Outcome
from callfuse.model.secrets import star_secrets
from callfuse.model.signature import Signature
from callfuse.observe.printable import printable
from callfuse.offline.differences import difference
from callfuse.offline.judging import Judged
from callfuse.offline.runs import RecordedRun

LONGEST: Final = 120
"""The most characters of a name, of arguments or of a result in reports."""
BEFORE: Final = 5
AFTER: Final = 1
"""`BEFORE` and `AFTER`: the numbers of calls shown around the one with the finding."""
MAX_CELLS: Final = 500
"""The most calls of one run that are drawn; the rest is only counted."""

_BLANK: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class CallExcerpt:
    """A call as short texts.

    `number` counts from 1 in its run, `found` marks the call with the finding. `differs`: the difference between its
    result and the previous one of the same call in its turn; empty if they are equal, or if there is no previous one.
    `begins_turn`: a user message is between it and the previous call shown.
    """

    number: int
    id: str
    tool: str
    arguments: str
    result: str
    found: bool = False
    differs: str = ""
    begins_turn: bool = False


@dataclass(frozen=True, slots=True)
class FindingExcerpt:
    """A finding with the calls around it. `done`: the rung that it would have led to, or `nothing`."""

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
    calls: tuple[CallExcerpt, ...]

    @property
    def summary(self) -> str:
        """The finding in one line: `repeat 3 of search (soft, from 3): steer`."""
        strength = "hard" if self.hard else "soft"
        return f"{self.rule} {self.count} of {self.tool} ({strength}, from {self.threshold}): {self.done}"


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call with a finding: its number in the run from 1, turn and round from 0, the finding, and the rung that it
    would have led to. `rung`: None if nothing would have been done; `acts`: the call would have been withheld."""

    call: int
    turn: int
    round: int
    id: str
    tool: str
    kinds: tuple[str, ...]
    count: int
    threshold: int
    hard: bool
    rung: str | None
    acts: bool


@dataclass(frozen=True, slots=True)
class RunFindings:
    """All findings in a run, oldest first. `acts_from`: the number of the first call that would have been withheld;
    None if there is none."""

    run: str
    source: str
    model: str
    success: bool | None
    calls: int
    acts_from: int | None
    findings: tuple[FoundCall, ...]


def findings_of(run: RecordedRun, calls: Sequence[Judged], rules: frozenset[str]) -> RunFindings:
    """Return all findings of these rules in a run, without arguments and results."""
    found = tuple(_found_call(one, number) for number, one in enumerate(calls, 1) if one.is_of(rules))
    acts_from = next((one.call for one in found if one.acts), None)
    return RunFindings(short(run.id), short(run.source), short(run.model), run.success, len(calls), acts_from, found)


def _found_call(one: Judged, number: int) -> FoundCall:
    finding, verdict = one.finding, one.verdict
    if finding is None or verdict is None:
        raise ValueError(f"nothing was found in call {number}")
    return FoundCall(
        call=number,
        turn=one.turn,
        round=one.round,
        id=short(one.call.id),
        tool=short(finding.tool),
        kinds=one.kinds(),
        count=finding.count,
        threshold=finding.threshold,
        hard=finding.hard,
        rung=None if verdict.rung is None else str(verdict.rung),
        acts=verdict.withholds,
    )


def first_findings(run: RecordedRun, calls: Sequence[Judged], rules: frozenset[str]) -> list[FindingExcerpt]:
    """Return the first finding of each rule in a run, in the order of the calls."""
    firsts: dict[str, int] = {}
    for at, one in enumerate(calls):
        for kind in one.kinds():
            if kind in rules:
                firsts.setdefault(kind, at)
    before = _outcomes_before(calls)
    return [_excerpt(run, calls, before, at) for at in dict.fromkeys(firsts.values())]


def _excerpt(run: RecordedRun, calls: Sequence[Judged], before: Sequence[Outcome | None], at: int) -> FindingExcerpt:
    finding, verdict = calls[at].finding, calls[at].verdict
    if finding is None or verdict is None:
        raise ValueError(f"nothing was found in call {at}")
    around = range(max(0, at - BEFORE), min(len(calls), at + AFTER + 1))
    return FindingExcerpt(
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
        calls=tuple(
            replace(
                describe_call(calls[place].call, place + 1, found=place == at, before=before[place]),
                begins_turn=place > around.start and calls[place].turn != calls[place - 1].turn,
            )
            for place in around
        ),
    )


def _outcomes_before(calls: Sequence[Judged]) -> list[Outcome | None]:
    """Return, for each call, the outcome that the same call returned earlier in its turn; None if there is none."""
    newest: dict[tuple[int, Signature], Outcome] = {}
    before: list[Outcome | None] = []
    for one in calls:
        key = one.turn, one.call.signature
        before.append(newest.get(key))
        if one.call.outcome:
            newest[key] = one.call.outcome
    return before


def describe_call(past: PastCall, number: int, *, found: bool = False, before: Outcome | None = None) -> CallExcerpt:
    """Describe a call in short texts, without secrets, because reports are shown to others. `before`: its previous
    outcome."""
    outcome = past.outcome
    result = short(star_secrets(outcome.text)) if outcome else "(unknown)"
    arguments = short(star_secrets(past.call.text, 4 * LONGEST))
    differs = difference(before, outcome) if before and outcome else ""
    return CallExcerpt(number, short(past.id), short(past.name), arguments, result, found, differs)


def short(text: str) -> str:
    """Cut a text to `LONGEST` characters, on one line and without control characters."""
    text = printable(_BLANK.sub(" ", text[: 4 * LONGEST]).strip())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def describe_success(success: bool | None) -> str:
    """Return whether a run succeeded: `ok`, `failed`, `outcome unknown`."""
    return {True: "ok", False: "failed", None: "outcome unknown"}[success]


@dataclass(frozen=True, slots=True)
class Cell:
    """A call. `hue`: a colour in degrees, the same for equal calls; None for a call that occurs only once."""

    call: CallExcerpt
    hue: int | None
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A run as a strip of cells: turns of rounds of cells. `more`: the number of calls left out at the end."""

    run: str
    model: str
    success: bool | None
    findings: list[FindingExcerpt]
    turns: list[list[list[Cell]]]
    calls: int
    more: int


def draw_run(run: RecordedRun, calls: Sequence[Judged], rules: frozenset[str]) -> Picture:
    """Draw a run: one cell per call, up to `MAX_CELLS`, with its findings of these rules."""
    counts = Counter(one.call.signature for one in calls)
    shown = calls[:MAX_CELLS]
    cells = [
        _cell(one, number, before, counts, rules)
        for number, (one, before) in enumerate(zip(shown, _outcomes_before(shown), strict=True), 1)
    ]
    drawn = zip(shown, cells, strict=True)
    turns = [
        [[cell for _, cell in of_round] for _, of_round in groupby(of_turn, lambda pair: pair[0].round)]
        for _, of_turn in groupby(drawn, lambda pair: pair[0].turn)
    ]
    findings = first_findings(run, calls, rules)
    more = len(calls) - len(shown)
    return Picture(short(run.id), short(run.model), run.success, findings, turns, len(calls), more)


def _cell(one: Judged, number: int, before: Outcome | None, counts: Counter[bytes], rules: frozenset[str]) -> Cell:
    finding = one.finding if one.is_of(rules) else None
    signature = one.call.signature
    hue = int.from_bytes(signature[:2], "big") % 360 if counts[signature] > 1 else None
    return Cell(describe_call(one.call, number, found=finding is not None, before=before), hue, finding)
