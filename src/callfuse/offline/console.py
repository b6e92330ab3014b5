"""Reports for people at a terminal or in a pipe: the table, and single findings with the calls around them."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from callfuse.offline.replaying import Replay
from callfuse.offline.showing import ShownFinding, verdict_of
from callfuse.offline.table import NAMES, NOTES, TextTable, table

PIPE_WIDTH = 250
"""Columns where nobody knows how wide it is: no figure may be cut."""
LEAST_NAME = 6
"""Columns of a source's name that must be left for a table."""
WIDE = 150
"""From how many columns on there is room for numbers beside shares."""


def console() -> Console:
    """Standard output, without colours and as wide as it needs where it is no terminal."""
    probe = Console()
    return Console(width=None if probe.is_terminal else PIPE_WIDTH, highlight=False, soft_wrap=not probe.is_terminal)


def report(replay: Replay, width: int) -> Iterator[RenderableType]:
    """Everything, part by part."""
    texts = table(replay, counts=width >= WIDE)
    yield from _table(texts, width, gap=2 if width >= WIDE else 1)
    yield from (Text(note, "dim") for note in NOTES)
    for finding in replay.findings:
        yield Text()
        for line in _lines(finding):
            line.truncate(width, overflow="ellipsis")
            yield line


def _table(texts: TextTable, width: int, *, gap: int) -> Iterator[RenderableType]:
    """The table: where it is too narrow for that names of sources are cut, and then it becomes a list. Figures are
    never cut."""
    columns = list(zip(texts.headings, *texts.rows, strict=True))
    sizes = [max(map(len, column)) for column in columns]
    beyond = sum(sizes) + gap * (len(sizes) - 1) - width
    if beyond > 0:  # headings go over several lines, then the names of sources are cut
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
    """The table with a line for each figure."""
    for at, cells in enumerate(texts.rows):
        yield Text(" ".join(filter(None, cells[:NAMES])), "bold" if at in texts.marked else "")
        for heading, cell in zip(texts.headings[NAMES:], cells[NAMES:], strict=True):
            if cell:
                yield Text(f"  {heading}: {cell}")


def _lines(finding: ShownFinding) -> Iterator[Text]:
    """A finding: what it is, and the calls around it."""
    yield Text(finding.summary, "bold red" if finding.hard else "bold yellow")
    names = ", ".join(name for name in (finding.source, finding.model) if name)
    yield Text(f"  run {finding.run}: {names}, {verdict_of(finding.success)}", "dim")
    for call in finding.calls:
        mark = ">" if call.found else " "
        id_ = "" if call.id == f"#{call.number}" else f" {call.id}"
        line = Text(f"  {mark} {call.number:>4}{id_}  {call.tool} {call.arguments}", "bold" if call.found else "")
        yield line.append(f"  -> {call.result}", "dim")
