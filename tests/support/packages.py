"""Builds callfuse as it is released, and installs it apart from its sources. Neither needs a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.project.sources import PROJECT

TIMEOUT_S = 120
OWN = ("CALLFUSE_", "TOOL_LOOP_", "PYTHON", "PYTEST_")
"""What begins the names of variables that would lead a process back to the sources, or change what it does."""
CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(OWN)}


def build(kind: str, into: Path, source: Path = PROJECT) -> Path:
    """Build the `wheel` or the `sdist` of a folder with sources into a folder; returns its path."""
    program = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
    return into / run(Path(sys.executable), source, "-c", program, str(into)).splitlines()[-1]


def environment_with(wheel: Path, folder: Path, lender: Path = Path(sys.executable)) -> Path:
    """The Python of a new environment that has this wheel, and borrows the folders of packages of another one: `.pth`
    files, of which one may lead to the sources, are not read there."""
    run(lender, folder.parent, "-m", "venv", "--without-pip", str(folder))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    run(Path(sys.executable), folder.parent, *install)
    listed = "import sys; print(*(path for path in sys.path if path.endswith('site-packages')), sep='\\n')"
    own = Path(run(python, folder, "-c", listed).strip())
    (own / "borrowed.pth").write_text(run(lender, folder, "-c", listed))
    return python


PYTEST = ("-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider")
"""What runs tests, and leaves nothing behind."""


def copy_tests(into: Path) -> None:
    """The tests, and what they read beside the package."""
    for name in ("tests", "examples", "benchmarks", "docs", "pyproject.toml", "README.md", "CHANGELOG.md"):
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, into / name)


def run(program: Path, folder: Path, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """What a program prints that is run in this folder, and ends well."""
    done = subprocess.run(
        [str(program), *arguments],
        cwd=folder,
        env=CLEAN | {"HYPOTHESIS_PROFILE": "quick"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
