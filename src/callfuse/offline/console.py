"""Reports for people at a terminal or in a pipe: the table, and single findings with the calls around them."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from callfuse.offline.replaying import Replay
from callfuse.offline.showing import ShownFinding, verdict_of
from callfuse.offline.table import NAMES, NOTES, table

PIPE_WIDTH = 250
"""Columns where nobody knows how wide it is: no figure may be cut."""
WIDE = 150
"""From how many columns on there is room for numbers beside shares."""


def console() -> Console:
    """Standard output, without colours and as wide as it needs where it is no terminal."""
    probe = Console()
    return Console(width=None if probe.is_terminal else PIPE_WIDTH, highlight=False, soft_wrap=not probe.is_terminal)


def report(replay: Replay, width: int) -> Iterator[RenderableType]:
    """Everything, part by part."""
    yield _table(replay, counts=width >= WIDE)
    yield from (Text(note, "dim") for note in NOTES)
    for finding in replay.findings:
        yield Text()
        for line in _lines(finding):
            line.truncate(width, overflow="ellipsis")
            yield line


def _table(replay: Replay, *, counts: bool) -> Table:
    texts = table(replay, counts=counts)
    shown = Table(box=None, padding=(0, 2 if counts else 1, 0, 0), pad_edge=False, header_style="bold")
    for at, heading in enumerate(texts.headings):
        name = at < NAMES
        shown.add_column(Text(heading), justify="left" if name else "right", no_wrap=name, vertical="bottom")
    for at, cells in enumerate(texts.rows):
        shown.add_row(*(Text(cell, "bold" if at in texts.marked else "") for cell in cells))
    return shown


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
