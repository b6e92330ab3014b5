"""Show the story: as plain lines for pipes and narrow terminals, or live in two columns.

Plain lines have no colours and no control codes, and are wrapped to the width.
"""

import shutil
import sys
import textwrap
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from callfuse.demo.agent import QUESTION
from callfuse.demo.story import EntryKind, Side, StoryEntry, Summary, saving
from callfuse.observe.printable import printable

MIN_WIDTH, MAX_WIDTH = 48, 100

_LABELS = {
    EntryKind.HELD: "HELD",
    EntryKind.FINDING: "finding",
    EntryKind.GUIDANCE: "sent to the model instead of a result",
    EntryKind.ANSWER: "answer",
    EntryKind.BLOCK: "BLOCKED; the agent reads",
    EntryKind.LIMIT: "STOPPED",
}

MIN_WIDTH_LIVE = 84
"""The least width of a terminal for two columns."""

_STYLES = {
    EntryKind.CALL: ("", ""),
    EntryKind.HELD: ("HELD  ", "bold yellow"),
    EntryKind.FINDING: ("", "yellow"),
    EntryKind.GUIDANCE: ("", "cyan"),
    EntryKind.ANSWER: ("", "bold green"),
    EntryKind.BLOCK: ("BLOCKED  ", "bold red"),
    EntryKind.LIMIT: ("STOPPED  ", "bold red"),
}


class PlainStage:
    """Writes each entry at once, one run after the other. `width`: columns; default: the terminal's, within limits."""

    at_once = False

    def __init__(self, out: TextIO | None = None, width: int | None = None) -> None:
        self._out = out or sys.stdout
        columns = width or shutil.get_terminal_size((MAX_WIDTH, 24)).columns
        self._width = min(max(columns, MIN_WIDTH), MAX_WIDTH)
        self._side: Side | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: written lines stay."""

    def open(self) -> None:
        """Write the introduction."""
        self._write(
            "callfuse demo: a scripted model that loops on a search tool, and a small agent that runs its "
            "calls. The agent runs twice: directly with the model, and through callfuse serve. Everything "
            "runs on this machine."
        )
        self._write(f"The agent asks: {QUESTION}")

    def show(self, entry: StoryEntry) -> None:
        """Write an entry, under the heading of its run."""
        if entry.side is not self._side:
            self._side = entry.side
            self._line("")
            self._line(entry.side.value)
            self._line("-" * len(entry.side.value))
        if entry.kind is EntryKind.CALL:
            self._write(entry.text, first=f"{entry.number:3}  ", rest="     ")
        else:
            self._write(f"{_LABELS[entry.kind]}: {entry.text}", first="  *  ", rest="     ")

    def close(self, summary: Summary, verdict: str) -> None:
        """Write the figures."""
        self._line("")
        self._line(f"{'':14}{'without':>9}{'with':>8}{'saved':>15}")
        for name, without, with_callfuse in summary.rows:
            self._line(f"{name:14}{without:9,}{with_callfuse:8,}{saving(without, with_callfuse):>15}")
        self._line("")
        self._write(verdict)

    def _write(self, text: str, first: str = "", rest: str = "") -> None:
        for paragraph in text.splitlines() or [""]:
            for line in textwrap.wrap(
                printable(paragraph), self._width, initial_indent=first, subsequent_indent=rest
            ) or [""]:
                self._line(line)
            first = rest

    def _line(self, line: str) -> None:
        encoding = self._out.encoding or "utf-8"
        print(line.encode(encoding, "replace").decode(encoding), file=self._out, flush=True)


class LiveStage:
    """Redraws both columns at each entry. A context manager, because it takes over the screen."""

    at_once = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: dict[Side, list[StoryEntry]] = {side: [] for side in Side}
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self.columns)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def open(self) -> None:
        """Draw the introduction."""
        about = Text("callfuse demo  ", style="bold")
        about.append(
            "a scripted model that loops, and the same agent twice; everything runs on this machine\n", "not bold"
        )
        about.append("The agent asks: ", "dim").append(QUESTION, "not bold")
        self._console.print(about)

    def show(self, entry: StoryEntry) -> None:
        """Draw an entry."""
        self._entries[entry.side].append(entry)
        self._live.refresh()

    def columns(self) -> RenderableType:
        """Return both runs so far, in two columns."""
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


def _line(entry: StoryEntry) -> RenderableType:
    label, style = _STYLES[entry.kind]
    text = "\n".join(printable(line) for line in entry.text.splitlines())
    if entry.kind is EntryKind.CALL:
        return Text(f"{entry.number:2}  {text}", no_wrap=True, overflow="ellipsis")
    return Padding(Text(label + text, style), (0, 0, 0, 4))
