"""Reports for programs: one JSON object, or CSV with a row for each source and rule."""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from callfuse import __version__
from callfuse.offline.replaying import Replay
from callfuse.offline.run import CHARACTERS_A_TOKEN
from callfuse.offline.tally import Figures, Outcomes, rules_of
from callfuse.wire.jsontext import dumps


@dataclass(frozen=True, slots=True)
class Row:
    """One rule in one source. Numbers of runs, calls and findings; tokens are estimates."""

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
    """A row for each source and rule; a source in which nothing fired has the row for all rules."""
    for source, figures in replay.figures.items():
        for rule in rules_of({source: figures}):
            yield row(source, rule, figures)


def row(source: str, rule: str, figures: Figures) -> Row:
    """One rule in one source."""
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
    """The rows, with a head."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows([_cell(value) for value in asdict(one).values()] for one in rows(replay))
    return text.getvalue().encode("utf-8", "replace")


def as_json(replay: Replay) -> bytes:
    """Everything: settings, rows, what was held, the shown findings, and what could not be read."""
    return dumps(
        {
            "callfuse": __version__,
            "tool_call_loop": replay.settings.model_dump(mode="json"),
            "rules": sorted(replay.rules),
            "characters_a_token": CHARACTERS_A_TOKEN,
            "rows": [asdict(one) for one in rows(replay)],
            "held": [{"source": source} | _held(figures) for source, figures in replay.figures.items()],
            "findings": [asdict(finding) for finding in replay.findings],
            "runs_without_calls": replay.empty,
            "faults": {"count": replay.fault_count, "first": [asdict(fault) for fault in replay.faults]},
        }
    )


def _held(figures: Figures) -> dict[str, Any]:
    """How many calls of a source could have been found to loop, and would have been held."""
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
    """A value for a spreadsheet, which would run a text that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
