"""The figures as a table of texts, for the terminal and for the page: a row for each source and rule that fired."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from callfuse.offline.replaying import Replay
from callfuse.offline.showing import short
from callfuse.offline.tally import ANY, rules_of, total
from callfuse.offline.values import Row, row

ALL: Final = "all sources"

NAMES: Final = 2
"""How many of the columns, from the first, are names; the others are figures."""

NOTES: Final = (
    "ok, failed, unknown: runs by the task's outcome as the record tells it, which is not whether there was a loop. "
    "fired: runs with a finding; hard ok: runs that were ok with a hard one; soft, hard: findings.",
    "saved: calls of failed runs from the first one that would have been withheld to the end of the run. What the "
    "model would have done instead, nobody knows. Tokens are characters of names, arguments and results / 4, as far "
    "as they were recorded, without the prompt that is read again in each round.",
)


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows of as many cells; `marked` are the rows that stand for all rules."""

    headings: list[str]
    rows: list[list[str]]
    marked: frozenset[int]


def table(replay: Replay, *, counts: bool = True) -> TextTable:
    """The table, with columns for outcomes that some run has; without `counts`, shares alone, for narrow places."""
    groups = dict(replay.figures)
    if len(groups) > 1:
        groups[ALL] = total(replay.figures.values())
    lines = [row(source, rule, figures) for source, figures in groups.items() for rule in rules_of({source: figures})]
    labels = {label for line in lines for label, runs in _runs(line) if runs}
    columns = [list(_cells(line, labels, counts=counts)) for line in lines]
    headings = [heading for heading, _ in columns[0]] if columns else []
    marked = frozenset(at for at, line in enumerate(lines) if line.rule == ANY)
    return TextTable(headings, [[cell for _, cell in column] for column in columns], marked)


def _runs(line: Row) -> Iterator[tuple[str, int]]:
    yield "ok", line.runs_successful
    yield "failed", line.runs_failed
    yield "unknown", line.runs_unlabelled


def _cells(line: Row, labels: set[str], *, counts: bool) -> Iterator[tuple[str, str]]:
    """Heading and text of each cell; the names of a source and its runs stand in its first row only."""
    is_first = line.rule == ANY
    yield "source", short(line.source) if is_first else ""
    yield "rule", line.rule
    runs = dict(_runs(line))
    for label, many in runs.items():
        if label in labels:
            yield f"{label} runs", f"{many:,}" if is_first else ""
    fired = (line.fired_successful, line.fired_failed, line.fired_unlabelled)
    for (label, many), some in zip(runs.items(), fired, strict=True):
        if label in labels:
            yield f"fired {label}", _share(some, many, counts=counts)
    if "ok" in labels:
        yield "hard ok", _share(line.hard_successful, line.runs_successful, counts=counts)
    yield "soft", f"{line.findings_soft:,}"
    yield "hard", f"{line.findings_hard:,}"
    if "failed" in labels:
        yield "calls saved", _share(line.saved_calls, line.calls_failed, counts=counts)
        yield "tokens saved", _share(line.saved_tokens, line.tokens_failed, counts=counts)


def _share(part: int, whole: int, *, counts: bool) -> str:
    """`12 (3.5%)`, or the share alone; a dash of nothing."""
    if not whole:
        return "-"
    share = f"{part / whole:.1%}"
    return f"{part:,} ({share})" if counts else share
