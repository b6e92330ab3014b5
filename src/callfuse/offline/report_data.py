"""Format the figures of a replay as rows, one for each source and rule: as JSON and CSV, or as a table of texts.

The terminal and the page show the table.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from callfuse import __version__
from callfuse.offline.answers import answer_of
from callfuse.offline.excerpts import short
from callfuse.offline.replay import ANY, Figures, Fired, Outcomes, Replay, rules_of, total
from callfuse.offline.runs import CHARACTERS_A_TOKEN
from callfuse.wire.jsontext import dumps

ALL: Final = "all sources"
"""The name of the rows for all sources together."""

COLUMNS: Final = (
    *("source", "rule"),
    *("runs_successful", "runs_failed", "runs_unlabelled"),
    *("fired_successful", "fired_failed", "fired_unlabelled"),
    *("hard_successful", "hard_failed", "hard_unlabelled"),
    *("findings_soft", "findings_hard"),
    *("calls_failed", "saved_calls", "tokens_failed", "saved_tokens"),
)
"""The columns of JSON and CSV."""

LABELS: Final = ("ok", "failed", "unknown")
"""Outcomes of runs in the table, in the order of `_by_outcome`."""

NAMES: Final = 2
"""The number of columns with names, from the first on; the others have figures."""

NOTES: Final = (
    "ok, failed, unknown: runs by the outcome of the task in the record, whether or not there was a loop. "
    "source: as the record, --source or the file names it; rule: the kind of finding; any rule: each run once. "
    "fired: runs with a finding; hard ok: runs that were ok with a hard one; soft, hard: findings.",
    "saved: calls of failed runs from the first one that would have been withheld to the end of the run. It "
    "is unknown what the model would have done instead. Tokens are the recorded characters of names, "
    "arguments and results / 4, without the prompt that is read again in each round.",
)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One rule in one source."""

    source: str
    rule: str
    figures: Figures

    @property
    def fired(self) -> Fired:
        """The figures of the rule in the source."""
        return self.figures.fired[self.rule]

    def cells(self) -> dict[str, str | int]:
        """Return the row for JSON and CSV, by `COLUMNS`: numbers of runs, calls and findings. Tokens are estimates."""
        figures, fired = self.figures, self.fired
        values = (
            self.source,
            self.rule,
            *_by_outcome(figures.runs),
            *_by_outcome(fired.runs),
            *_by_outcome(fired.hard_runs),
            fired.soft,
            fired.hard,
            figures.calls[False],
            fired.saved_calls,
            figures.failed_tokens,
            fired.saved_tokens,
        )
        return dict(zip(COLUMNS, values, strict=True))


def rows(figures: Mapping[str, Figures]) -> list[ReportRow]:
    """Return a row for each source and rule. A source in which nothing fired has only the row `ANY`."""
    return [ReportRow(source, rule, one) for source, one in figures.items() for rule in rules_of({source: one})]


def as_csv(replay: Replay) -> bytes:
    """Return the rows as CSV in UTF-8, with a heading line."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in one.cells().values()] for one in rows(replay.figures))
    return text.getvalue().encode("utf-8", "replace")


def as_json(replay: Replay) -> bytes:
    """Return the whole replay as a JSON object: settings, rows, held calls, runs with their findings, the findings to
    show, and faults."""
    return dumps(
        {
            "callfuse": __version__,
            "tool_call_loop": replay.settings.model_dump(mode="json"),
            "answer": answer_of(replay),
            "rules": sorted(replay.rules),
            "characters_a_token": CHARACTERS_A_TOKEN,
            "rows": [one.cells() for one in rows(replay.figures)],
            "held": [{"source": source} | _held_figures(figures) for source, figures in replay.figures.items()],
            "runs": [asdict(run) for run in replay.runs],
            "findings": [asdict(finding) for finding in replay.findings],
            "runs_without_calls": replay.empty,
            "faults": {"count": replay.fault_count, "first": [asdict(fault) for fault in replay.faults]},
        }
    )


def _held_figures(figures: Figures) -> dict[str, Any]:
    """Return the numbers of suspect and held calls of a source."""
    return {
        "calls": figures.calls.total(),
        "suspect": figures.suspect.total(),
        "held": figures.held.total(),
        "calls_successful": figures.calls[True],
        "held_successful": figures.held[True],
        "calls_successful_without_finding": figures.quiet,
        "held_successful_without_finding": figures.quiet_held,
    }


def _by_outcome(outcomes: Outcomes) -> tuple[int, int, int]:
    return outcomes[True], outcomes[False], outcomes[None]


def _cell(value: str | int) -> str | int:
    """Quote a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings, and rows with a cell for each. `marked`: the indexes of the rows for all rules together."""

    headings: list[str]
    rows: list[list[str]]
    marked: frozenset[int]


def table(replay: Replay, *, counts: bool = True) -> TextTable:
    """Make the table, with columns for the outcomes that occur. Without `counts`, cells have only shares."""
    groups = dict(replay.figures)
    if len(groups) > 1:
        groups[ALL] = total(replay.figures.values())
    lines = rows(groups)
    labels = {
        label for line in lines for label, runs in zip(LABELS, _by_outcome(line.figures.runs), strict=True) if runs
    }
    columns = [list(_cells(line, labels, counts=counts)) for line in lines]
    headings = [heading for heading, _ in columns[0]] if columns else []
    marked = frozenset(at for at, line in enumerate(lines) if line.rule == ANY)
    return TextTable(headings, [[cell for _, cell in column] for column in columns], marked)


def _cells(line: ReportRow, labels: set[str], *, counts: bool) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each cell. The name of a source and its runs are only in its first row."""
    is_first = line.rule == ANY
    figures, fired = line.figures, line.fired
    yield "source", short(line.source) if is_first else ""
    yield "rule", line.rule
    runs = dict(zip(LABELS, _by_outcome(figures.runs), strict=True))
    for label, many in runs.items():
        if label in labels:
            yield f"{label} runs", f"{many:,}" if is_first else ""
    for (label, many), some in zip(runs.items(), _by_outcome(fired.runs), strict=True):
        if label in labels:
            yield f"fired {label}", _share(some, many, counts=counts)
    if "ok" in labels:
        yield "hard ok", _share(fired.hard_runs[True], figures.runs[True], counts=counts)
    yield "soft", f"{fired.soft:,}"
    yield "hard", f"{fired.hard:,}"
    if "failed" in labels:
        yield "calls saved", _share(fired.saved_calls, figures.calls[False], counts=counts)
        yield "tokens saved", _share(fired.saved_tokens, figures.failed_tokens, counts=counts)


def _share(part: int, whole: int, *, counts: bool) -> str:
    """Format a share as `12 (3.5%)`, or without the count; a dash if the whole is 0."""
    if not whole:
        return "-"
    share = f"{part / whole:.1%}"
    return f"{part:,} ({share})" if counts else share
