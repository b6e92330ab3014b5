"""`callfuse doctor --explain` for a recorded answer, whole or streamed: its format, its calls, and which would be held.

Each dialect tries to read it, in each stream format; the one that finds most is used. The answer is judged as by
`callfuse replay`, without an earlier conversation.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from callfuse.boundary import Boundary
from callfuse.cli.diagnosis import Check, counted, ok
from callfuse.dialects import DIALECTS, Dialect, recognise_answer
from callfuse.dialects.base import OpenCall
from callfuse.dialects.codec import codec_of
from callfuse.model import PastCall, Round, ToolCall
from callfuse.model.secrets import star_secrets
from callfuse.observe.printable import plain
from callfuse.offline.judging import Judged, judge_run
from callfuse.offline.runs import RecordedRun
from callfuse.policy.settings import LoopSettings
from callfuse.wire import AWS_CHUNKS, AWS_EVENTS, EVENTS, JSON_ARRAY, WHOLE, Format, Payload
from callfuse.wire.ndjson import NDJSON

AREA: Final = "answer"
STREAMS: Final[tuple[tuple[Format, str], ...]] = (
    (EVENTS, "server-sent events"),
    (AWS_EVENTS, "an AWS event stream"),
    (AWS_CHUNKS, "an AWS event stream"),
    (NDJSON, "lines of JSON"),
    (JSON_ARRAY, "a JSON array"),
)
"""The stream formats, with their names for people."""
LONGEST: Final = 120
"""The most characters of a call that are shown."""
MOST_CALLS: Final = 20
"""The most calls that are shown."""


class ReadAnswer(NamedTuple):
    """An answer that a dialect has read. `form`: its stream format, empty if it is whole. `cut`: calls without an end,
    which are not evidence."""

    dialect: Dialect
    form: str
    found: int
    calls: Sequence[Sequence[ToolCall]]
    cut: int


def read_answer(body: bytes, value: Any, among: Sequence[Dialect] = DIALECTS) -> ReadAnswer | None:
    """Return the answer in a body, read by one of these dialects; None if it is not an answer. `value`: the body's JSON
    value, None if it is not JSON."""
    if value is not None and (known := recognise_answer(value)) is not None:
        return _read(known[0], WHOLE, "", [known[1]])
    best: ReadAnswer | None = None
    for form, name in STREAMS:
        for dialect in among:
            with Boundary():  # the body may be in any format, or in none
                found = _read(dialect, form, name, codec_of(dialect, form).payloads([body]))
                if found.found > (best.found if best else 0):
                    best = found
    return best


def _read(dialect: Dialect, form: Format, name: str, payloads: Sequence[Payload]) -> ReadAnswer:
    reader = codec_of(dialect, form).reader(trace=True)
    events = sum(len(reader.read(payload)) for payload in payloads)
    choices: dict[int, list[OpenCall]] = {}
    for call in reader.calls:
        choices.setdefault(call.choice, []).append(call)
    calls = [[call.complete() for call in of_choice if call.closed] for _, of_choice in sorted(choices.items())]
    return ReadAnswer(dialect, name, events, calls, sum(not call.closed for call in reader.calls))


def explain_answer(answer: ReadAnswer, size: int, settings: LoopSettings) -> Iterator[Check]:
    """Explain an answer of `size` bytes."""
    form = f"streamed as {answer.form}" if answer.form else "whole"
    yield ok(AREA, f"{size:,} bytes: an answer of {answer.dialect.name}, {form}")
    total = sum(map(len, answer.calls))
    cut = f"; {answer.cut} incomplete, so not evidence" if answer.cut else ""
    yield ok(AREA, f"{counted(total, 'complete call') if total else 'no complete call'}{cut}")
    rounds = (Round(tuple(map(PastCall, calls)), 0) for calls in answer.calls if calls)
    runs = (RecordedRun("", "", "", None, [[one]]) for one in rounds)
    judged = (one for run in runs for one in judge_run(run, settings))
    yield from (_told(one) for one in islice(judged, MOST_CALLS))
    if total > MOST_CALLS:
        yield ok(AREA, f"and {total - MOST_CALLS:,} more")
    if total:
        yield ok(AREA, "earlier calls count as well: use --explain with its request, or `callfuse replay` with the run")


def _told(judged: Judged) -> Check:
    """Return what happens to a call."""
    call = judged.call.call
    shown = plain(star_secrets(f"{call.full_name} {call.text}", LONGEST))
    verdict = judged.verdict
    if verdict is not None:
        found = verdict.finding
        return ok(
            AREA,
            f"{shown}: callfuse uses {verdict.rung} ({found.kind}, {found.count} with a limit of {found.threshold})",
        )
    held = "is held until it is complete, then passes" if judged.held else "passes without being held"
    return ok(AREA, f"{shown} {held}")
