"""A copy of the project to which something is added, and in which tests run.

In: the files and lines that a new thing consists of. Out: what differs from the project, and whether tests pass.
"""

import os
import shutil
import subprocess
import sys
from difflib import ndiff
from pathlib import Path

from tests.project.sources import PROJECT

COPIED = ("src", "tests", "docs", "benchmarks", "examples", "README.md", "pyproject.toml", "Makefile")
TOYS = Path(__file__).parent / "toys"


class Copy:
    """A copy of the project below an empty folder, with compiled modules: these hold for files of the same time."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "project"
        self._root.mkdir()
        for name in COPIED:
            source = PROJECT / name
            if source.is_dir():
                shutil.copytree(source, self._root / name)
            elif source.exists():
                shutil.copy(source, self._root / name)

    def add_file(self, path: str, text: str) -> None:
        """Write a file that is not there yet."""
        file = self._root / path
        assert not file.exists()
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def add_line(self, path: str, after: str, line: str) -> None:
        """Add a line to a file behind the only one that begins with `after`."""
        file = self._root / path
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (at,) = (at for at, one in enumerate(lines) if one.startswith(after))
        file.write_text("".join([*lines[: at + 1], f"{line}\n", *lines[at + 1 :]]), encoding="utf-8")

    def changes(self) -> dict[str, list[str]]:
        """By path the lines in which the copy differs from the project; none of a file that is only in the copy."""
        found: dict[str, list[str]] = {}
        for file in sorted(self._root.rglob("*")):
            name = file.relative_to(self._root)
            if not file.is_file() or "__pycache__" in name.parts or ".hypothesis" in name.parts:
                continue
            mine = file.read_bytes()
            theirs = (PROJECT / name).read_bytes() if (PROJECT / name).exists() else None
            if theirs is None:
                found[name.as_posix()] = []
            elif mine != theirs:
                both = (theirs.decode().splitlines(), mine.decode().splitlines())
                found[name.as_posix()] = [line for line in ndiff(*both) if line[0] in "+-"]
        return found

    def run_tests(self, *arguments: str, profile: str = "quick") -> str:
        """Run tests of the copy on the package of the copy, with a profile of hypothesis: what pytest prints of
        failures; empty where all pass."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-x", *arguments],
            cwd=self._root,
            env={
                **os.environ,
                "HYPOTHESIS_PROFILE": profile,
                "PYTHONPATH": f"{self._root / 'src'}{os.pathsep}{self._root}",
            },
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        print(done.stdout)
        return done.stdout if done.returncode else ""
