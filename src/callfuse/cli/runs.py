"""Provide common parts of the commands that read recorded runs: exit codes, faults on stderr, a progress bar."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from callfuse.offline.files import Reading
from callfuse.offline.runs import Unreadable


def run_command(command: str, work: Callable[[], int]) -> int:
    """Run a command. Returns its exit code, 1 for a closed pipe, 2 for an OSError, 130 for an interrupt."""
    try:
        return work()
    except BrokenPipeError:  # the reader has closed the pipe, so the interpreter must not flush into it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return fail(command, f"cannot write {error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        print(f"callfuse {command}: interrupted", file=sys.stderr)
        return 130


def fail(command: str, what: str) -> int:
    """Print a problem on stderr. Returns the exit code 2."""
    first, *lines = what.splitlines()
    print(f"callfuse {command}: {first}", *(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
    return 2


def print_faults(command: str, faults: Sequence[Unreadable], count: int) -> None:
    """Print faults on stderr, and their total number if `faults` has only the first ones."""
    if not count:
        return
    what = "fault" if count == 1 else "faults"
    print(f"callfuse {command}: {count:,} {what} in the input:", file=sys.stderr)
    for fault in faults:
        print(f"  {fault}", file=sys.stderr)
    if count > len(faults):
        print(f"  and {count - len(faults):,} more", file=sys.stderr)


@contextmanager
def progress(files: Sequence[str], reading: Reading, doing: str) -> Iterator[Callable[[], None]]:
    """Show a progress bar while files are read, if stderr is a terminal. Yields a function to call after each run.

    The bar shows how much of the files has been read and the number of runs, or only the runs if a size is not known,
    for example of standard input. It is removed at the end.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    regular = all(Path(name).is_file() for name in files)
    total = sum(Path(name).stat().st_size for name in files) if regular else None
    runs = TextColumn("{task.fields[runs]:,} runs")
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns(), runs, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=total, runs=0)
        yield lambda: bar.update(task, completed=reading.position, runs=reading.records)
