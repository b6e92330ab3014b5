"""Measure the disk space of an installation, without extras and with each, for docs/install.md.

    python -m benchmarks.weights

Installs callfuse from this checkout into fresh environments, so it needs a package index. Prints megabytes of
`site-packages` (without pip and similar tools), the part of compiled Python (pip writes it, uv does not), and the
number of packages.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).parents[1]
EXTRAS: Final = ("", "redis", "otel", "serve", "envoy", "demo")
MB: Final = 1_000_000
LARGEST: Final = 4
"""The number of largest packages that are named."""


class Weight(NamedTuple):
    """The size of an environment: all bytes, those of compiled Python, and those of each package's folder."""

    total: int
    compiled: int
    packages: int
    folders: dict[str, int]


def install(extra: str, folder: Path) -> Path:
    """Install into a new environment. Returns its `site-packages`. Raises CalledProcessError without an index."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    what = f"{PROJECT}[{extra}]" if extra else str(PROJECT)
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "--disable-pip-version-check",
        "install",
        "-qq",
        what,
    ]
    subprocess.run(command, check=True)
    return next(path for path in folder.rglob("site-packages"))


def weigh(packages: Path) -> Weight:
    """Return the sizes in a folder of packages."""
    files = [path for path in packages.rglob("*") if path.is_file()]
    folders: dict[str, int] = {}
    for path in files:
        name = path.relative_to(packages).parts[0]
        folders[name] = folders.get(name, 0) + path.stat().st_size
    compiled = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
    return Weight(sum(folders.values()), compiled, len([*packages.glob("*.dist-info")]), folders)


def main() -> None:
    """Print a line for each extra: its size, and what it adds to a plain installation."""
    plain: Weight | None = None
    print(f"{'':18} {'MB':>6} {'compiled':>9} {'added':>6} {'packages':>9}  the largest")
    for extra in EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = weigh(install(extra, Path(folder) / "environment"))
            except subprocess.CalledProcessError as error:
                print(f"cannot be installed: {error}")
                return
        plain = plain or found
        sizes = sorted(found.folders.items(), key=lambda one: -one[1])[:LARGEST]
        largest = ", ".join(f"{name} {size / MB:.1f}" for name, size in sizes)
        figures = f"{found.total / MB:6.1f} {found.compiled / MB:9.1f} {(found.total - plain.total) / MB:6.1f}"
        print(f"{f'callfuse[{extra}]' if extra else 'callfuse':18} {figures} {found.packages:9}  {largest}")


if __name__ == "__main__":
    main()
