"""The table of layers in `docs/architecture.md` holds: imports go up its rows only, and the core stays pure."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import pytest
from benchmarks.house import CORE_ROOMS

from tests.project.sources import Module, document, modules, parsed, quoted, rows, top_level

VALUES = {"abc", "bisect", "collections", "contextlib", "dataclasses", "enum", "functools", "itertools", "math"}
VALUES |= {"operator", "struct", "types", "typing"}
TEXTS = {"binascii", "fnmatch", "hashlib", "json", "orjson", "pydantic", "pydantic_core", "rapidfuzz", "re", "string"}
CORE_MAY_IMPORT = VALUES | TEXTS
"""All that the core is built of: values, texts, digests. No clock, no IO, no logging, no chance, no framework."""

KINDS = ("core", "shell", "around")
"""Pure rows, those that a host needs with them, and what stands on both."""

CORE_MAY_NOT_CALL = frozenset({"open", "print", "input", "exec", "eval"})

SEAMS = frozenset({"conversations.ledger", "conversations.memory"})
"""Modules of the core whose functions may be `async`, for the shell awaits them; they await nothing themselves."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of the table."""

    kind: str
    packages: frozenset[str]

    @property
    def core(self) -> bool:
        """Whether it is pure."""
        return self.kind == "core"


def layers() -> list[Layer]:
    """The table, first row first."""
    table = rows(document("docs/architecture.md"), "Layers")
    return [Layer(kind, frozenset(quoted(packages))) for kind, packages, _ in table]


def wrong_imports(found: Sequence[Module]) -> list[str]:
    """The imports within `callfuse` that do not go to a row above."""
    table = layers()
    place = {package: at for at, layer in enumerate(table) for package in layer.packages}
    wrong = []
    for module in found:
        for imported in module.imports():
            root, _, below = imported.partition(".")
            package = below.partition(".")[0] or "__init__"
            if root != "callfuse" or package == module.package:
                continue
            if place[package] >= place[module.package]:
                wrong.append(f"{module.name} imports {imported}")
    return wrong


def needed_by_hosts() -> set[str]:
    """The packages of the rows `core` and `shell`."""
    return {package for layer in layers() if layer.kind != "around" for package in layer.packages}


def around_imported(found: Sequence[Module]) -> list[str]:
    """What modules that a host needs import from others."""
    needed = needed_by_hosts()
    imports = [
        (module.name, name.split(".")) for module in found if module.package in needed for name in module.imports()
    ]
    return [
        f"{name} imports {'.'.join(imported)}"
        for name, imported in imports
        if imported[0] == "callfuse" and [*imported, "__init__"][1] not in needed
    ]


def impurities(found: Sequence[Module]) -> list[str]:
    """What modules of the core do that the core must not."""
    core = {package for layer in layers() if layer.core for package in layer.packages}
    return [
        f"{module.name}: {what}" for module in found if module.package in core for what in _impurities(module, core)
    ]


def _impurities(module: Module, core: set[str]) -> list[str]:
    found = []
    for imported in module.imports():
        root, _, below = imported.partition(".")
        if root == "callfuse" and below.partition(".")[0] not in core:
            found.append(f"imports {imported}, which is shell")
        elif root != "callfuse" and root not in CORE_MAY_IMPORT:
            found.append(f"imports {imported}")
    for node in ast.walk(module.tree):
        match node:
            case ast.Await() | ast.AsyncFor() | ast.AsyncWith() | ast.comprehension(is_async=1):
                found.append("awaits")
            case ast.AsyncFunctionDef(name=name) if module.name not in SEAMS:
                found.append(f"async def {name}")
            case ast.Call(func=ast.Name(id=name)) if name in CORE_MAY_NOT_CALL:
                found.append(f"calls {name}")
            case _:
                pass
    return found


def test_the_table_names_every_package_once() -> None:
    """Each package and file below `callfuse` stands in one row; the core's rows come first, what stands around last."""
    table = layers()
    named = [package for layer in table for package in layer.packages]
    assert sorted(named) == sorted(top_level())
    assert [layer.kind for layer in table] == sorted((layer.kind for layer in table), key=KINDS.index)


def test_imports_go_up_the_table() -> None:
    """No package imports from its own row or from one below, at the top of a file or inside a function."""
    assert wrong_imports(modules()) == []


def test_a_host_needs_nothing_of_what_stands_around() -> None:
    """What is needed has all the rooms whose lines are counted as the core's, and imports nothing around it."""
    assert needed_by_hosts() >= set(CORE_ROOMS)
    assert around_imported(modules()) == []


@pytest.mark.parametrize(
    "text", ["from callfuse.proxy.app import ReverseProxy", "import callfuse", "from .. import cli"]
)
def test_an_import_from_around_is_found(text: str) -> None:
    """Packages around, the public names, and relative imports."""
    assert len(around_imported([parsed("config.model", text), parsed("cli.app", text)])) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("guard.guard", "import callfuse.asgi.headers"),
        ("guard.guard", "from callfuse.conversations.ledger import Ledger"),
        ("dialects.base", "from callfuse import config"),
        ("config.model", "from callfuse import CallFuseMiddleware"),
        ("model", "from .detect import Engine"),
        ("policy.ladder", "from ..dialects.base import Frame"),
        ("asgi.exchange", "def late():\n    from callfuse.cli.app import app"),
        ("stores.redis", "from importlib import import_module\nimport_module('callfuse.asgi')"),
        ("model.outcomes", "import json, callfuse.policy.texts"),
    ],
)
def test_a_wrong_import_is_found(name: str, text: str) -> None:
    """Whatever way it is written, an import that does not go up is told."""
    assert len(wrong_imports([parsed(name, text)])) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("guard.guard", "from callfuse.guard.hold import Hold\nfrom . import judge"),
        ("guard.guard", "from callfuse import model\nfrom ..policy import texts"),
        ("cli.serve", "from callfuse import CallFuseMiddleware, __version__"),
    ],
)
def test_a_right_import_is_not(name: str, text: str) -> None:
    """Imports within a package, and of rows above, are free."""
    assert wrong_imports([parsed(name, text)]) == []


def circle_in(found: Sequence[Module]) -> list[str]:
    """Files that need each other, directly or through others; empty if there are none."""
    files = {f"callfuse.{module.name}" for module in found if not module.is_package}
    needs = {f"callfuse.{module.name}": files.intersection(module.imports()) for module in found}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_two_files_need_each_other() -> None:
    """Not even where an import stands inside a function: each file can be read behind those that it needs."""
    assert circle_in(modules()) == []


def test_a_circle_is_found() -> None:
    """Of two files, or through a third, also where one of the imports is late."""
    late = parsed("observe.one", "def late():\n    from callfuse.observe.two import Two")
    assert circle_in([late, parsed("observe.two", "from callfuse.observe.three import Three")]) == []
    back = parsed("observe.three", "from callfuse.observe.one import One")
    assert len(circle_in([late, parsed("observe.two", "from callfuse.observe.three import Three"), back])) == 4


def test_the_core_is_pure() -> None:
    """The core awaits nothing, and imports only what computes."""
    assert impurities(modules()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("guard.guard", "import time"),
        ("guard.guard", "from datetime import datetime"),
        ("detect.repeat", "import logging"),
        ("dialects.base", "import random"),
        ("dialects.openai_chat.writer", "from uuid import uuid4"),
        ("wire.sse", "import asyncio"),
        ("model", "import anyio"),
        ("policy.texts", "def late():\n    import starlette.types"),
        ("wire.jsontext", "from importlib import import_module"),
        ("model.signature", "__import__('os')"),
        ("conversations.conversation", "import callfuse.observe.log"),
        ("guard.guard", "async def feed(chunk): ..."),
        ("conversations.ledger", "async def read(lane):\n    await lane"),
        ("conversations.ledger", "async def read(lanes):\n    return [lane async for lane in lanes]"),
        ("conversations.ledger", "async def read(lane):\n    async with lane: ..."),
        ("errors", "print('oh')"),
    ],
)
def test_an_impurity_is_found(name: str, text: str) -> None:
    """Clock, log, chance, IO, framework and await are told, wherever they stand."""
    assert impurities([parsed(name, text)]) != []


def test_the_seam_is_free_to_be_async() -> None:
    """The ledger's own methods are awaited by the shell; the shell may do what it likes."""
    free = [parsed("conversations.ledger", "async def read(lane): ..."), parsed("asgi.body", "import time")]
    assert impurities(free) == []


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after this statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


FOREIGN = {
    "aiohttp",
    "backports",
    "httpx",
    "httpx2",
    "prometheus_client",
    "opentelemetry",
    "redis",
    "rich",
    "sse_starlette",
    "starlette",
    "typer",
    "uvicorn",
    "uvloop",
}
"""Servers, clients and frameworks: a host brings its own, and some of them change things when they are imported."""


@pytest.mark.slow
def test_importing_callfuse_loads_no_server_client_or_framework() -> None:
    """What a host mounts brings only the core's own dependencies."""
    loaded = loaded_by("from callfuse import *")
    assert "callfuse" in loaded
    assert loaded & FOREIGN == set()


@pytest.mark.slow
def test_a_foreign_import_would_be_seen() -> None:
    """The reverse proxy does load its client."""
    assert "aiohttp" in loaded_by("import callfuse.proxy.app") & FOREIGN


def test_metrics_are_made_in_one_file() -> None:
    """A host that has no prometheus-client mounts everything else."""
    importing = {one.name for one in modules() if any(name.startswith("prometheus_client") for name in one.imports())}
    assert importing == {"observe.prometheus"}


def test_opentelemetry_stands_in_one_file() -> None:
    """What its releases change is changed there. Another looks whether it is installed."""
    roots = {module.name: {name.partition(".")[0] for name in module.imports()} for module in modules()}
    assert {name for name, found in roots.items() if "opentelemetry" in found} == {"observe.otel", "observe.telemetry"}
