"""The story in two live columns, side by side. For terminals."""

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from callfuse.demo import scene
from callfuse.demo.story import Entry, Kind, Side, Summary, saving
from callfuse.observe.printable import printable

MIN_WIDTH = 84
"""Below this two columns cannot be read."""

_STYLES = {
    Kind.CALL: ("", ""),
    Kind.HELD: ("HELD  ", "bold yellow"),
    Kind.FINDING: ("", "yellow"),
    Kind.GUIDANCE: ("", "cyan"),
    Kind.ANSWER: ("", "bold green"),
    Kind.BLOCK: ("BLOCKED  ", "bold red"),
    Kind.LIMIT: ("STOPPED  ", "bold red"),
}


class LiveStage:
    """Redraws both columns at each entry. A context manager: the screen is its own until the end of the block."""

    at_once = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: dict[Side, list[Entry]] = {side: [] for side in Side}
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self.columns)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def open(self) -> None:
        """Say what is about to be seen."""
        about = Text("callfuse demo  ", style="bold")
        about.append("a scripted model that loops, and the same agent twice; all of it on this machine\n", "not bold")
        about.append("The agent asks: ", "dim").append(scene.QUESTION, "not bold")
        self._console.print(about)

    def show(self, entry: Entry) -> None:
        """Draw an entry."""
        self._entries[entry.side].append(entry)
        self._live.refresh()

    def columns(self) -> RenderableType:
        """Both runs so far."""
        table = Table.grid(expand=True, padding=(0, 1))
        for _ in Side:
            table.add_column(ratio=1)
        table.add_row(*(self._column(side) for side in Side))
        return table

    def _column(self, side: Side) -> Panel:
        border = {Side.WITHOUT: "red", Side.WITH: "green"}[side]
        lines = [_line(entry) for entry in self._entries[side]]
        return Panel(Group(*lines), title=side.value, title_align="left", border_style=border, padding=(0, 1))

    def close(self, summary: Summary, verdict: str) -> None:
        """Draw the figures."""
        table = Table(box=None, padding=(0, 2))
        table.add_column("")
        for heading in ("without", "with", "saved"):
            table.add_column(heading, justify="right")
        for name, without, with_callfuse in summary.rows:
            table.add_row(
                name, f"{without:,}", f"{with_callfuse:,}", Text(saving(without, with_callfuse), "bold green")
            )
        self._console.print(table)
        self._console.print(Text(verdict, "bold"))


def _line(entry: Entry) -> RenderableType:
    label, style = _STYLES[entry.kind]
    text = "\n".join(printable(line) for line in entry.text.splitlines())
    if entry.kind is Kind.CALL:
        return Text(f"{entry.number:2}  {text}", no_wrap=True, overflow="ellipsis")
    return Padding(Text(label + text, style), (0, 0, 0, 4))
