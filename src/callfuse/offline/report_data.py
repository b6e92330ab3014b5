"""The figures of a replay as rows, one for each source and rule: as JSON and CSV for programs, as a table of texts.

The report at the terminal and the page show the table.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from callfuse import __version__
from callfuse.offline.excerpts import short
from callfuse.offline.replay import ANY, Figures, Outcomes, Replay, rules_of, total
from callfuse.offline.runs import CHARACTERS_A_TOKEN
from callfuse.wire.jsontext import dumps

ALL: Final = "all sources"
"""The name of the rows for all sources together."""

NAMES: Final = 2
"""How many columns, from the first, hold names; the others hold figures."""

NOTES: Final = (
    "ok, failed, unknown: runs by the task's outcome as the record tells it, which is not whether there was a loop. "
    "fired: runs with a finding; hard ok: runs that were ok with a hard one; soft, hard: findings.",
    "saved: calls of failed runs from the first one that would have been withheld to the end of the run. What the "
    "model would have done instead, nobody knows. Tokens are characters of names, arguments and results / 4, as far "
    "as they were recorded, without the prompt that is read again in each round.",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One rule in one source: numbers of runs, calls and findings; tokens are estimates."""

    source: str
    rule: str
    runs_successful: int
    runs_failed: int
    runs_unlabelled: int
    fired_successful: int
    fired_failed: int
    fired_unlabelled: int
    hard_successful: int
    hard_failed: int
    hard_unlabelled: int
    findings_soft: int
    findings_hard: int
    calls_failed: int
    saved_calls: int
    tokens_failed: int
    saved_tokens: int


def rows(replay: Replay) -> Iterator[Row]:
    """Yield a row for each source and rule; a source in which nothing fired has the row `ANY` alone."""
    for source, figures in replay.figures.items():
        for rule in rules_of({source: figures}):
            yield row(source, rule, figures)


def row(source: str, rule: str, figures: Figures) -> Row:
    """Make the row of one rule in one source."""
    fired = figures.fired[rule]
    return Row(
        source,
        rule,
        *_counts(figures.runs),
        *_counts(fired.runs),
        *_counts(fired.hard_runs),
        fired.soft,
        fired.hard,
        figures.calls[False],
        fired.saved_calls,
        figures.failed_tokens,
        fired.saved_tokens,
    )


def as_csv(replay: Replay) -> bytes:
    """The rows as CSV in UTF-8, with a heading line."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows([_cell(value) for value in asdict(one).values()] for one in rows(replay))
    return text.getvalue().encode("utf-8", "replace")


def as_json(replay: Replay) -> bytes:
    """The whole replay as a JSON object: settings, rows, held calls, the findings kept, and what could not be read."""
    return dumps(
        {
            "callfuse": __version__,
            "tool_call_loop": replay.settings.model_dump(mode="json"),
            "rules": sorted(replay.rules),
            "characters_a_token": CHARACTERS_A_TOKEN,
            "rows": [asdict(one) for one in rows(replay)],
            "held": [{"source": source} | _held_figures(figures) for source, figures in replay.figures.items()],
            "findings": [asdict(finding) for finding in replay.findings],
            "runs_without_calls": replay.empty,
            "faults": {"count": replay.fault_count, "first": [asdict(fault) for fault in replay.faults]},
        }
    )


def _held_figures(figures: Figures) -> dict[str, Any]:
    """How many calls of a source were suspect, and how many would have been held."""
    return {
        "calls": figures.calls.total(),
        "suspect": figures.suspect.total(),
        "held": figures.held.total(),
        "calls_successful": figures.calls[True],
        "held_successful": figures.held[True],
        "calls_successful_without_finding": figures.quiet,
        "held_successful_without_finding": figures.quiet_held,
    }


def _counts(outcomes: Outcomes) -> tuple[int, int, int]:
    return outcomes[True], outcomes[False], outcomes[None]


def _cell(value: str | int) -> str | int:
    """Quote a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings, and rows with a cell for each; `marked` are the indexes of the rows for all rules together."""

    headings: list[str]
    rows: list[list[str]]
    marked: frozenset[int]


def table(replay: Replay, *, counts: bool = True) -> TextTable:
    """Make the table, with columns for those outcomes that some run has; without `counts`, cells hold shares only."""
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
    """Heading and text of each cell; the name of a source and its runs are in its first row only."""
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
    """`12 (3.5%)`, or the share alone; a dash if the whole is 0."""
    if not whole:
        return "-"
    share = f"{part / whole:.1%}"
    return f"{part:,} ({share})" if counts else share
