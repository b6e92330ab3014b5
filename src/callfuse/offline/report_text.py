"""Print reports to a terminal or a pipe.

`report_replay`: the table of a replay, and single findings with the calls around them. `report_tuning`: a table of the
tuned sources, and a few lines about each.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from callfuse.offline.answers import answer_of
from callfuse.offline.conformal import Trial
from callfuse.offline.excerpts import FindingExcerpt, describe_success, short
from callfuse.offline.replay import Replay
from callfuse.offline.report_data import NAMES, NOTES, TextTable, table
from callfuse.offline.tuning import CannotTuneError, Source, Tuned, limits_of

PIPE_WIDTH = 250
"""Columns if the width is unknown: wide enough that no figure is cut."""
LEAST_NAME = 6
"""The least width for the name of a source; with less, the table becomes a list."""
WIDE = 150
"""The least width for a table with numbers and shares."""

TUNING_NOTES = (
    "Held out: one half of the successful runs sets a line and the other half is judged by it; means over "
    "all halves. good: the share of these runs that is acted on; saved: calls of failed runs from the first "
    "one acted on to the end. by length: a line on the number of calls alone (max_calls), set in the same "
    "way, for the same share.",
    "The settings are based on all successful runs. The promise holds for runs of the same agent, model and "
    "mix of tasks, counted once each: set on some tasks and judged on others, lines for 5% acted on 6.8% of "
    "good runs, and on 21.6% in the worst draw. It is unknown what the model would have done instead of a "
    "withheld call.",
)

TuningResult = tuple[str, Source, Tuned | CannotTuneError]
"""The name of a source, its runs, and its settings or the reason why there are none."""


def console() -> Console:
    """Return a console for standard output; if that is not a terminal, without colours and `PIPE_WIDTH` wide."""
    probe = Console()
    return Console(width=None if probe.is_terminal else PIPE_WIDTH, highlight=False, soft_wrap=not probe.is_terminal)


def report_replay(replay: Replay, width: int) -> Iterator[RenderableType]:
    """Yield the parts of the report on a replay for a terminal of `width` columns."""
    yield Text(answer_of(replay), "bold")
    yield Text()
    texts = table(replay, counts=width >= WIDE)
    yield from _draw_table(texts, width, gap=2 if width >= WIDE else 1)
    yield from (Text(note, "dim") for note in NOTES)
    for finding in replay.findings:
        yield Text()
        for line in _finding_lines(finding):
            line.truncate(width, overflow="ellipsis")
            yield line


def _draw_table(texts: TextTable, width: int, *, gap: int) -> Iterator[RenderableType]:
    """Yield the table. If it is too wide, names of sources are cut, then it becomes a list; figures are never cut."""
    columns = list(zip(texts.headings, *texts.rows, strict=True))
    sizes = [max(map(len, column)) for column in columns]
    beyond = sum(sizes) + gap * (len(sizes) - 1) - width
    if beyond > 0:  # wrap headings, then cut the names of sources
        wrapped = [max(map(len, (*heading.split(), *cells))) for heading, *cells in columns[NAMES:]]
        beyond -= sum(sizes[NAMES:]) - sum(wrapped)
        sizes = [max(min(LEAST_NAME, sizes[0]), sizes[0] - max(0, beyond)), *sizes[1:NAMES], *wrapped]
        if sum(sizes) + gap * (len(sizes) - 1) > width:
            yield from _list(texts)
            return
    shown = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for at, (heading, size) in enumerate(zip(texts.headings, sizes, strict=True)):
        name = at < NAMES
        shown.add_column(
            Text(heading), width=size, justify="left" if name else "right", no_wrap=name, vertical="bottom"
        )
    for at, cells in enumerate(texts.rows):
        shown.add_row(*(Text(cell, "bold" if at in texts.marked else "") for cell in cells))
    yield shown


def _list(texts: TextTable) -> Iterator[Text]:
    """Yield the table as a list with a line for each figure."""
    for at, cells in enumerate(texts.rows):
        yield Text(" ".join(filter(None, cells[:NAMES])), "bold" if at in texts.marked else "")
        for heading, cell in zip(texts.headings[NAMES:], cells[NAMES:], strict=True):
            if cell:
                yield Text(f"  {heading}: {cell}")


def _finding_lines(finding: FindingExcerpt) -> Iterator[Text]:
    """Yield the lines of a finding: its summary, and the calls around it."""
    yield Text(finding.summary, "bold red" if finding.hard else "bold yellow")
    names = ", ".join(name for name in (finding.source, finding.model) if name)
    yield Text(f"  run {finding.run}: {names}, {describe_success(finding.success)}", "dim")
    for call in finding.calls:
        if call.begins_turn:
            yield Text("    ---- a user message ----", "dim")
        mark = ">" if call.found else " "
        id_ = "" if call.id == f"#{call.number}" else f" {call.id}"
        line = Text(f"  {mark} {call.number:>4}{id_}  {call.tool} {call.arguments}", "bold" if call.found else "")
        line.append(f"  -> {call.result}", "dim")
        yield line.append(f"  (differs: {call.differs})") if call.differs else line


def report_tuning(results: Sequence[TuningResult]) -> Iterator[RenderableType]:
    """Yield the parts of the report on tuned sources."""
    tuned = [result for _, _, result in results if isinstance(result, Tuned)]
    if tuned:
        yield from (Text(f"{short(one.name)}: {one.answer}", "bold") for one in tuned)
        yield Text()
        yield _tuning_table(results)
        yield from (Text(note, "dim") for note in TUNING_NOTES)
    for name, source, result in results:
        yield Text()
        yield Text(short(name), "bold")
        yield from (Text(f"  {line}") for line in _source_lines(source, result))


def _tuning_table(results: Sequence[TuningResult]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    shown.add_column("source", no_wrap=True)
    for heading in ("good runs", "failed runs", "good", "saved", "by length: good", "saved"):
        shown.add_column(heading, justify="right", vertical="bottom")
    for name, source, result in results:
        found = result.trials if isinstance(result, Tuned) else None
        shown.add_row(
            short(name),
            f"{len(source.good):,}",
            f"{len(source.failed):,}",
            *_shares(source, found and found.scale),
            *_shares(source, found and found.length),
        )
    return shown


def _shares(source: Source, trial: Trial | None) -> tuple[str, str]:
    if trial is None:
        return "-", "-"
    calls = sum(run.calls for run in source.failed)
    return f"{trial.acted:.1%}", f"{trial.saved / calls:.1%}" if calls else "-"


def _source_lines(source: Source, result: Tuned | CannotTuneError) -> Iterator[str]:
    if isinstance(result, CannotTuneError):
        yield f"Not tuned: {result}."
        return
    yield result.promise
    for name, settings in (("The scale", result.by_scale), ("By length", result.by_length)):
        limits = (f"{name}: {limit}" for name, limit in limits_of(settings).items() if limit)
        yield f"{name}: {', '.join(limits)}"
    yield from (f"Feedback: {short(str(one))}" for one in result.raised)
    yield result.recommendation
    if source.unlabelled:
        yield f"{source.unlabelled:,} of its runs do not say whether they succeeded, and are ignored."
