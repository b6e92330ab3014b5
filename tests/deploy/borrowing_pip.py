"""A `pip` without a network: `wheel` packs the sources as they are, `--python PYTHON install` installs that wheel and
borrows all that it requires from the interpreter that runs this.

    python borrowing_pip.py wheel --no-deps --wheel-dir FOLDER .
    python borrowing_pip.py --python PYTHON install "FOLDER/callfuse-1.0.0-py3-none-any.whl[serve]"
"""

import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path


def pack(source: Path, folder: Path) -> None:
    """Make the wheel, with the command line and the extras that the project declares."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    found = re.search(r'^__version__ = "(.+)"$', (source / "src/callfuse/__init__.py").read_text(), re.MULTILINE)
    assert found, "no version"
    assert (source / project["readme"]).exists()
    assert all((source / name).exists() for name in project["license-files"])
    info = f"callfuse-{found[1]}.dist-info"
    files = {str(path.relative_to(source / "src")): path.read_bytes() for path in (source / "src").rglob("*.*")}
    lines = ["Metadata-Version: 2.1", "Name: callfuse", f"Version: {found[1]}"]
    lines += [f"Provides-Extra: {extra}" for extra in project["optional-dependencies"]]
    files[f"{info}/METADATA"] = "\n".join(lines).encode()
    scripts = [f"{name} = {place}" for name, place in project["scripts"].items()]
    files[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *scripts]).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"callfuse-{found[1]}-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)


def install(python: str, what: str) -> None:
    """Install a wheel, whose extras have to be there, and let that interpreter import what this one can."""
    wheel, _, extras = what.rstrip("]").partition("[")
    with zipfile.ZipFile(wheel) as file:
        [metadata] = [file.read(name).decode() for name in file.namelist() if name.endswith("/METADATA")]
    for extra in extras.split(","):
        assert f"Provides-Extra: {extra}" in metadata.splitlines(), extra
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(command, check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    known = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (Path(folder) / "borrowed.pth").write_text("\n".join(sorted(known)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["wheel", "--no-deps", "--wheel-dir", to, source]:
            pack(Path(source), Path(to))
        case ["--python", python, "install", what]:
            install(python, what)
        case other:
            sys.exit(f"not known here: {other}")
