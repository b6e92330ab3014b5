"""`callfuse replay`: what some settings would have found in recorded runs. Needs `callfuse[serve]`.

Files and options go in; reports and an exit code come out: 0, or 2 for wrong options or settings and where no run could
be read. What could not be read of a file that has runs is told on stderr, and changes no exit code.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.model import Kind
from callfuse.offline.files import STDIN
from callfuse.offline.page import as_html
from callfuse.offline.reading import Reading
from callfuse.offline.replaying import Replay
from callfuse.offline.values import as_csv, as_json

DRAWN = 200
"""Runs of each source that the HTML page draws."""
LONG_BYTES = 8 * 2**20
"""Files from which on there is a progress bar."""

_REPORTS = {"json": as_json, "csv": as_csv, "html": as_html}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: `rules` (none: all), findings to show, reports as kind and file (`-`: standard output)."""

    config: Path | None = None
    source: str = ""
    rules: Sequence[str] = ()
    show: int = 0
    reports: tuple[tuple[str, str], ...] = ()

    @property
    def takes_stdout(self) -> bool:
        """Whether a report goes where the table would."""
        return any(path == STDIN for _, path in self.reports)


def run_replay(files: Sequence[str], wanted: Wanted) -> int:
    """Replay, and write what is wanted."""
    try:
        replay = _replay_for(wanted)
    except ConfigError as error:
        return _wrong(f"cannot replay with these settings:\n{error}")
    except ValueError as error:
        return _wrong(str(error))
    reading = Reading(files, source=wanted.source)
    try:
        with _progress(files, reading) as step:
            for one in reading:
                replay.take(one)
                step()
        _tell(replay)
        if not reading.records:
            return _wrong(f"no recorded run in {', '.join(files)}")
        _write(replay, wanted)
    except BrokenPipeError:  # whoever read the output has seen enough, and the interpreter must not flush into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _wrong(f"cannot write {error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        print("callfuse replay: interrupted", file=sys.stderr)
        return 130
    return 0


def _replay_for(wanted: Wanted) -> Replay:
    """An empty replay; ConfigError for wrong settings, ValueError for wrong options."""
    known = [str(kind) for kind in Kind]
    for rule in wanted.rules:
        if rule not in known:
            raise ValueError(f"--rule {rule}: use one of {', '.join(known)}")
    if sum(path == STDIN for _, path in wanted.reports) > 1:
        raise ValueError("only one report can go to standard output")
    settings = load_config(wanted.config).tool_call_loop
    if not settings.enabled:
        print("callfuse replay: tool_call_loop.enabled is false; this is as if it were true", file=sys.stderr)
        settings = settings.model_copy(update={"enabled": True})
    draw = DRAWN if any(kind == "html" for kind, _ in wanted.reports) else 0
    return Replay(settings, wanted.rules or known, show=wanted.show, draw=draw)


def _wrong(what: str) -> int:
    first, *lines = what.splitlines()
    print(f"callfuse replay: {first}", *(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
    return 2


def _tell(replay: Replay) -> None:
    """Say on stderr what could not be read."""
    if not replay.fault_count:
        return
    print(f"callfuse replay: {replay.fault_count:,} faults in what was to be read:", file=sys.stderr)
    for fault in replay.faults:
        print(f"  {fault}", file=sys.stderr)
    if replay.fault_count > len(replay.faults):
        print(f"  and {replay.fault_count - len(replay.faults):,} more", file=sys.stderr)


def _write(replay: Replay, wanted: Wanted) -> None:
    """The table, where nothing else takes its place, and the reports."""
    if not wanted.takes_stdout:
        from callfuse.offline.console import console, report

        out = console()
        for part in report(replay, out.width):
            out.print(part)
    for kind, path in wanted.reports:
        text = _REPORTS[kind](replay)
        if path == STDIN:
            sys.stdout.buffer.write(text.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()
        else:
            Path(path).write_bytes(text)


@contextmanager
def _progress(files: Sequence[str], reading: Reading) -> Iterator[Callable[[], None]]:
    """A step to be taken after each run: it moves a bar, where there is a terminal and much to read."""
    size = sum(Path(name).stat().st_size for name in files if Path(name).is_file())
    if size < LONG_BYTES or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=size)
        yield lambda: bar.update(task, completed=reading.position)
