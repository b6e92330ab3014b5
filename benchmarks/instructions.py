"""Count the instructions of one exchange with valgrind, compared with an earlier commit or with stored figures.

    python -m benchmarks.instructions [--only WAY] [--against REF_OR_FILE] [--save FILE]

The ways are those of `benchmarks.ways`, each in process after a few exchanges of the same kind. Two runs differ by a
few thousandths, under any load of the machine, so a change of one hundredth is visible, even in C code that a count of
calls does not show. `--against`: a commit, whose `src` is measured, too, or a file written by `--save`; by default the
last release, if git knows one. Figures depend on Python, processor and package versions. The garbage collector is off,
because its runs depend on everything before.

It takes about a minute for each commit, nearly all of it for imports, and needs `valgrind` (`apt install valgrind`).
"""

import argparse
import asyncio
import gc
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.ways import MEASURED, WAYS, drive

PROJECT: Final = Path(__file__).parent.parent
MARK: Final = "getppid"
"""The C library function at whose calls valgrind writes its count since the last call. Nothing else in these exchanges
calls it."""
TIMEOUT_S: Final = 900.0

Figures = dict[str, int]
"""Instructions of one exchange, by way."""


def run_marked(names: list[str]) -> None:
    """Run some ways one after the other, with a mark before and after each measured exchange."""
    gc.disable()
    for name in names:
        asyncio.run(drive(WAYS[name], os.getppid, os.getppid))


def measure(names: list[str], source: Path) -> Figures:
    """Count the instructions of ways, with the callfuse of the folder `source`. Raises CalledProcessError."""
    with TemporaryDirectory() as folder:
        counted = Path(folder) / "counted"
        count = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={counted}", f"--dump-before={MARK}"]
        code = f"from benchmarks.instructions import run_marked; run_marked({names})"
        environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{PROJECT}", "PYTHONHASHSEED": "0"}
        command = [*count, sys.executable, "-c", code]
        subprocess.run(command, check=True, env=environment, cwd=folder, timeout=TIMEOUT_S)
        marks = 2 * MEASURED * len(names)
        parts = [_total(counted.with_suffix(f".{number}")) for number in range(1, marks + 1)]
    exchanges = parts[1::2]  # the other parts are between them
    return {name: sum(exchanges[at * MEASURED :][:MEASURED]) // MEASURED for at, name in enumerate(names)}


def _total(part: Path) -> int:
    """Return the instructions of one part, from valgrind's output."""
    last = part.read_text().rstrip().rpartition("\n")[2]
    return int(last.removeprefix("totals:"))


def last_release() -> str:
    """Return the tag of the last release; empty if there is none, or no git."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "-C", str(PROJECT), "describe", "--tags", "--abbrev=0", "--match", "v*"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def figures_of(against: str, names: list[str]) -> Figures:
    """Stored figures of a file, or those of a commit, measured now. Raises ValueError if it is neither."""
    if Path(against).is_file():
        stored: Figures = json.loads(Path(against).read_text())
        return stored
    command = ["git", "-C", str(PROJECT), "archive", against, "src"]
    archive = subprocess.run(command, check=False, capture_output=True)
    if archive.returncode:
        raise ValueError(f"{against} is neither a file nor a commit: {archive.stderr.decode().strip()}")
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        return measure(names, Path(folder) / "src")


def table(now: Figures, before: Figures) -> str:
    """Return a line for each way: thousands of instructions before and now, and the change in percent."""
    lines = [f"{'thousands':12} {'before':>9} {'now':>9} {'change':>9}"]
    for name, count in now.items():
        was = before.get(name)
        change = f"{100 * (count - was) / was:+8.1f}%" if was else "-"
        lines.append(f"{name:12} {f'{was / 1000:.1f}' if was else '-':>9} {count / 1000:9.1f} {change:>9}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(WAYS))
    parser.add_argument("--against", default="", metavar="REF_OR_FILE")
    parser.add_argument("--save", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    ways = list(WAYS) if options.only is None else [options.only]
    if shutil.which("valgrind") is None:
        print("Nothing is counted: valgrind is not installed (apt install valgrind).")
        return
    against = options.against or last_release()
    try:
        before = figures_of(against, ways) if against else {}
    except ValueError as error:
        parser.error(str(error))
    now = measure(ways, PROJECT / "src")
    print(f"Against {against}:" if against else "There is no release to compare with; --against names a commit.")
    print(table(now, before))
    if options.save is not None:
        options.save.write_text(json.dumps(now, indent=2) + "\n")


if __name__ == "__main__":
    main()
