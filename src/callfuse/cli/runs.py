"""What the commands that read recorded runs have in common: how they end, what they tell on stderr, the bar."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from callfuse.offline.files import Reading
from callfuse.offline.runs import Fault

LONG_BYTES = 8 * 2**20
"""Files from which on there is a progress bar."""


def ended(command: str, work: Callable[[], int]) -> int:
    """The exit code of some work, or of what came in its way."""
    try:
        return work()
    except BrokenPipeError:  # whoever read the output has seen enough, and the interpreter must not flush into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return wrong(command, f"cannot write {error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        print(f"callfuse {command}: interrupted", file=sys.stderr)
        return 130


def wrong(command: str, what: str) -> int:
    """Say what is wrong; the exit code for it."""
    first, *lines = what.splitlines()
    print(f"callfuse {command}: {first}", *(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
    return 2


def tell(command: str, faults: Sequence[Fault], count: int) -> None:
    """Say on stderr what could not be read: the first faults, of so many."""
    if not count:
        return
    what = "fault" if count == 1 else "faults"
    print(f"callfuse {command}: {count:,} {what} in what was to be read:", file=sys.stderr)
    for fault in faults:
        print(f"  {fault}", file=sys.stderr)
    if count > len(faults):
        print(f"  and {count - len(faults):,} more", file=sys.stderr)


@contextmanager
def progress(files: Sequence[str], reading: Reading, doing: str) -> Iterator[Callable[[], None]]:
    """A step to be taken after each run: it moves a bar, where there is a terminal and much to read."""
    size = sum(Path(name).stat().st_size for name in files if Path(name).is_file())
    if size < LONG_BYTES or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=size)
        yield lambda: bar.update(task, completed=reading.position)
