"""What is released: a wheel with the package and its data and nothing else, sources with all that the tests need."""

import email
import json
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

import callfuse
from tests.hosts.environments import asked_for, environment
from tests.project.sources import PROJECT, SOURCE
from tests.project.test_building import METADATA
from tests.support.packages import CLEAN, PYTEST, build, copy_tests, environment_with, run

pytestmark = pytest.mark.slow

NAME = f"callfuse-{callfuse.__version__}"
DATA = {".css", ".html", ".js", ".json", ".md", ".typed"}
"""What the package has beside modules."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """What a package index shows of it."""
    with ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))


def in_package() -> set[str]:
    """The files of the package, as a wheel names them, with the pages that it takes from `docs`."""
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    pages = {f"callfuse/reference/kinds/{path.name}" for path in (PROJECT / "docs/kinds").iterdir()}
    return pages | {path.relative_to(SOURCE.parent).as_posix() for path in files}


def tracked() -> list[str]:
    """The files that git knows and that are there."""
    if shutil.which("git") is None or not (PROJECT / ".git").exists():
        pytest.skip("no checkout of git")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (PROJECT / name).exists()]


def test_the_wheel_holds_the_package_only(wheel: Path) -> None:
    """Every module, every file of data, the mark that it is typed; no test, no cache."""
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    written = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "sboms/callfuse.cdx.json")
    assert names == in_package() | {f"{NAME}.dist-info/{name}" for name in written}
    data = {name for name in in_package() if not name.endswith(".py")}
    assert {Path(name).suffix or Path(name).name for name in data} <= DATA
    assert {"callfuse/py.typed", "callfuse/admin/page.js", "callfuse/offline/page.html"} <= data


def test_nothing_runs_when_python_starts(wheel: Path) -> None:
    """No `.pth` file, no module that Python or another program loads by its name; the only entry is the command."""
    with ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
        entries = archive.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert {name.parts[0] for name in names} == {"callfuse", f"{NAME}.dist-info"}
    assert [name for name in names if name.suffix in (".pth", ".start", ".so", ".pyd", ".pyc")] == []
    assert [name for name in names if name.stem in ("sitecustomize", "usercustomize")] == []
    assert entries.splitlines() == ["[console_scripts]", "callfuse = callfuse.__main__:main"]


def test_the_bill_of_materials(wheel: Path, metadata: Message) -> None:
    """It names the package and all that it requires, each as the metadata do, and nothing else."""
    with ZipFile(wheel) as archive:
        bill = json.loads(archive.read(f"{NAME}.dist-info/sboms/callfuse.cdx.json"))
    package = bill["metadata"]["component"]
    assert (package["name"], package["version"]) == ("callfuse", callfuse.__version__)
    assert package["purl"] == f"pkg:pypi/callfuse@{callfuse.__version__}"
    needed = [one for line in metadata.get_all("Requires-Dist", []) if (one := Requirement(line)).name != "callfuse"]
    listed = {one["name"]: one for one in bill["components"]}
    assert listed.keys() == {one.name for one in needed}
    for one in needed:
        allowed = {Requirement(kept["value"]).specifier for kept in listed[one.name]["properties"]}
        assert one.specifier in allowed, one.name
    core = {one.name for one in needed if "extra" not in str(one.marker)}
    assert {name for name, one in listed.items() if one["scope"] == "required"} == core
    refs = {one["bom-ref"] for one in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) == refs == {one["ref"] for one in bill["dependencies"][1:]}


BILL = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


@asked_for
def test_the_bill_of_materials_is_valid(wheel: Path) -> None:
    """By the schema of CycloneDX."""
    python = environment("cyclonedx-python-lib[json-validation]==11.5.0")
    with ZipFile(wheel) as archive:
        bill = archive.read(f"{NAME}.dist-info/sboms/callfuse.cdx.json").decode()
    done = subprocess.run([python, "-c", BILL], input=bill, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "None\n"


def test_the_sources_hold_what_is_tracked(sdist: Path) -> None:
    """Whoever has them can run the tests."""
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert [name for name in tracked() if name not in names] == []
    assert not [name for name in names if name.startswith((".venv", ".git/")) or name.endswith(".pyc")]


def test_the_sources_build_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """Byte for byte, whenever and wherever."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    assert build("wheel", tmp_path, tmp_path / NAME).read_bytes() == wheel.read_bytes()


def test_an_index_accepts_them(wheel: Path, sdist: Path) -> None:
    """Their metadata and the page that is made of the README are checked as an upload would be."""
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_the_metadata_says_what_there_is(metadata: Message) -> None:
    """Name, version, license, Pythons, where to go; no extra is needed by the core."""
    assert (metadata["Name"], metadata["Version"]) == ("callfuse", callfuse.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Provides-Extra") == ["demo", "envoy", "otel", "redis", "serve"]
    links = dict(one.split(", ") for one in metadata.get_all("Project-URL", []))
    assert set(links) == {"Documentation", "Source", "Changelog", "Issues"}
    assert all(link.startswith(links["Source"]) for link in links.values())
    needed = [Requirement(one) for one in metadata.get_all("Requires-Dist", [])]
    core = {one.name for one in needed if one.marker is None or "extra" not in str(one.marker)}
    assert core == {"anyio", "orjson", "pydantic", "pyyaml", "rapidfuzz"}


def test_every_python_is_named(metadata: Message) -> None:
    """From the oldest that it runs on, without a gap; the linter is told of no newer one."""
    ends = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", [])]
    minors = [int(end.removeprefix("3.")) for end in ends if end.startswith("3.")]
    assert minors == list(range(11, 15))
    assert METADATA["project"]["requires-python"] == f">=3.{minors[0]}"


PARTS = (
    "tests/admin/test_served.py::test_the_settings_of_a_server",
    "tests/asgi/test_pass_through.py",
    "tests/asgi/test_shape.py",
    "tests/cli/test_demo.py::test_loop_is_caught",
    "tests/cli/test_serve.py::test_it_greets_serves_and_ends",
    "tests/offline/test_reports.py",
    "tests/testing/test_mounted.py",
)
"""The tests that are run with the installed wheel: mounted, served, and what reads files of the package."""


@pytest.mark.timeout(300)
def test_the_installed_wheel_passes_tests(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, with nothing of the sources in reach but the tests."""
    python = environment_with(wheel, tmp_path / "environment")
    copy_tests(tmp_path)
    where = run(python, tmp_path, "-c", "import callfuse; print(callfuse.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "environment")
    assert run(python.with_name("callfuse"), tmp_path, "--version") == f"callfuse {callfuse.__version__}\n"
    assert run(python.with_name("callfuse"), tmp_path, "explain", "repeat").startswith("# `repeat`\n")
    run(python, tmp_path, *PYTEST, *PARTS)
