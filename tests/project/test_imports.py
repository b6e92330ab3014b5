"""What each way to begin imports: help and the package next to nothing, the server only what it serves with."""

import ast
import subprocess
import sys

import pytest

import callfuse
from tests.project.sources import modules

COMMAND_LINE = {
    "callfuse",
    "callfuse.__main__",
    "callfuse.cli",
    "callfuse.cli.app",
    "callfuse.cli.config",
    "callfuse.cli.help",
    "callfuse.cli.listed",
    "callfuse.errors",
}
HEAVY = {"aiohttp", "anyio", "asyncio", "openai", "orjson", "prometheus_client", "rapidfuzz", "redis"}
HEAVY |= {"sse_starlette", "starlette", "uvicorn", "yaml", "yarl"}
"""Not pydantic: releases of typer look for it, where the help has options."""
UNUSED = {"openai", "opentelemetry", "redis", "rich", "sse_starlette", "typer", "uvloop", "websockets"}
"""Packages that `callfuse serve` imports only where a setting or a request needs them."""
OTHERS = {"demo", "inprocess", "mcp", "testing"}
"""Packages of callfuse that have no part in `callfuse serve`."""


def loaded_by(program: str, *arguments: str) -> set[str]:
    """The modules that a fresh interpreter has loaded at the end of a program."""
    ends = "import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    command = [sys.executable, "-c", ends + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


def own(loaded: set[str]) -> set[str]:
    """Those of callfuse."""
    return {name for name in loaded if name.partition(".")[0] == "callfuse"}


def roots(loaded: set[str]) -> set[str]:
    """The packages that they are of."""
    return {name.partition(".")[0] for name in loaded}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]])
def test_help_imports_only_the_command_line(arguments: list[str]) -> None:
    """It costs a tenth of a second: neither settings nor the guard nor any server is imported."""
    loaded = loaded_by("from callfuse.__main__ import main; main()", *arguments)
    assert own(loaded) == COMMAND_LINE
    assert roots(loaded) & HEAVY == set()


@pytest.mark.slow
def test_the_package_imports_a_name_when_it_is_used() -> None:
    """`import callfuse` loads nothing of it; an error does not load the middleware."""
    assert own(loaded_by("import callfuse")) == {"callfuse"}
    assert own(loaded_by("from callfuse import ConfigError")) == {"callfuse", "callfuse.errors"}


@pytest.mark.slow
def test_a_server_imports_what_it_serves_with() -> None:
    """No terminal, vendor's client, telemetry or store beside it, and nothing of the demo."""
    loaded = loaded_by("import callfuse.cli.serve")
    assert {"aiohttp", "uvicorn"} <= roots(loaded)
    assert roots(loaded) & UNUSED == set()
    assert {name.split(".")[1] for name in own(loaded) if "." in name} & OTHERS == set()


def test_every_public_name_has_its_place() -> None:
    """The names that a type checker sees, those of `__all__`, and those that are imported on use are the same."""
    tree = next(one for one in modules() if one.name == "").tree
    declared = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*declared, "__version__"} == {*callfuse.__all__}
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "_PLACES"
    )
    assert table is not None
    places = {name: f"{place}:{name}" if ":" not in place else place for name, place in ast.literal_eval(table).items()}
    assert places == declared


def test_public_names_are_listed_and_kept() -> None:
    """`dir` has all of them, each is the same object every time, and there are no others."""
    assert {*callfuse.__all__} <= {*dir(callfuse)}
    assert callfuse.LoopDetector is callfuse.LoopDetector
    with pytest.raises(AttributeError, match=r"module 'callfuse' has no attribute 'CallfuseMiddleware'"):
        getattr(callfuse, "CallfuseMiddleware")  # noqa: B009 - a type checker knows that there is none
