"""The story as plain lines: no colours, no control codes, wrapped to the width. For pipes and narrow terminals."""

import shutil
import sys
import textwrap
from typing import TextIO

from callfuse.demo import scene
from callfuse.demo.story import Entry, Kind, Side, Summary, saving
from callfuse.observe.printable import printable

MIN_WIDTH, MAX_WIDTH = 48, 100

_LABELS = {
    Kind.HELD: "HELD",
    Kind.FINDING: "finding",
    Kind.GUIDANCE: "told to the model instead of a result",
    Kind.ANSWER: "answer",
    Kind.BLOCK: "BLOCKED; the agent reads",
    Kind.LIMIT: "STOPPED",
}


class PlainStage:
    """Writes each entry as soon as it is there; the runs one after the other."""

    at_once = False

    def __init__(self, out: TextIO | None = None, width: int | None = None) -> None:
        self._out = out or sys.stdout
        columns = width or shutil.get_terminal_size((MAX_WIDTH, 24)).columns
        self._width = min(max(columns, MIN_WIDTH), MAX_WIDTH)
        self._side: Side | None = None

    def open(self) -> None:
        """Say what is about to be seen."""
        self._write(
            "callfuse demo: a scripted model that loops on a search tool, and a small agent that does as it says. "
            "The agent runs twice: straight to the model, and through callfuse serve. All of it is on this machine."
        )
        self._write(f"The agent asks: {scene.QUESTION}")

    def show(self, entry: Entry) -> None:
        """Write an entry, under the heading of its run."""
        if entry.side is not self._side:
            self._side = entry.side
            self._line("")
            self._line(entry.side.value)
            self._line("-" * len(entry.side.value))
        if entry.kind is Kind.CALL:
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
