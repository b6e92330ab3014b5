"""Runs Python blocks: in order, in the names of their page; an app that one mounts is asked by an agent in a loop."""

import ast
import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from prometheus_client import CollectorRegistry

from callfuse.testing import served
from tests.docs import given
from tests.docs.blocks import Block, blocks_of
from tests.docs.hosted import name_of
from tests.docs.world import World, copied, run_agent
from tests.hosts import client

APPS = ("app", "application")
"""What a block calls the app that it mounts callfuse in."""
MOUNTED = ("CallFuseMiddleware(", "Middleware(CallFuseMiddleware", "add_middleware(CallFuseMiddleware")


def wrong_names(code: str) -> list[str]:
    """What a block imports from callfuse that is not there. SyntaxError if it is no Python."""
    wrong = []
    for node in ast.walk(parsed(code)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "callfuse":
                wrong += [f"{module}.{one.name}" for one in names if not _has(module, one.name)]
            case ast.Import(names=names):
                own = [one.name for one in names if one.name.partition(".")[0] == "callfuse"]
                wrong += [name for name in own if find_spec(name) is None]
    return wrong


def _has(module: str, name: str) -> bool:
    """Whether it can be imported. Modules are read: some import a framework, which takes seconds or is not here."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    defined = {*_defined(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))}
    return name in defined or (spec.submodule_search_locations and find_spec(f"{module}.{name}")) is not None


def _defined(tree: ast.Module) -> Iterator[str]:
    """The names that a module defines or imports, wherever."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name


def parsed(code: str) -> ast.Module:
    """The tree of a block, which may await."""
    tree: ast.Module = compile(code, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return tree


def missing(code: str) -> list[str]:
    """The packages that a block imports and that are not installed here, nor stood in for."""
    found = []
    for node in ast.walk(parsed(code)):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found += [name for name in names if not _is_here(name)]
    return found


def _is_here(name: str) -> bool:
    if name in sys.modules:
        return True
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        above = ".".join(parts[:length])
        if above not in sys.modules and find_spec(above) is None:
            return False
    return True


@contextmanager
def stood_in(block: Block, world: World, folder: Path) -> Iterator[None]:
    """The folder with a reader's own modules and, where the page is of no host, a FastAPI; their environment; and a
    registry of metrics of their own."""
    copied(block.page, folder)
    env = {name: text for name, text in world.environment(folder).items() if name in given.VARIABLES}
    own = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    with pytest.MonkeyPatch.context() as patch:
        for name, text in env.items():
            patch.setenv(name, text)
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        patch.setattr("prometheus_client.REGISTRY", CollectorRegistry())
        before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in own}
        for name in before:
            del sys.modules[name]
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] in own]:
                del sys.modules[name]
            sys.modules.update(before)


def run_page(block: Block, world: World, names: Mapping[str, Any]) -> dict[str, Any]:
    """Run the blocks of a page up to this one, and return its names. A block that is a file has names of its own."""
    found: dict[str, Any] = {}
    before = [one for one in blocks_of(block.page) if one.line < block.line and one.language == "python"]
    for one in [] if block.file else [one for one in before if not one.file and not missing(one.text)]:
        found |= names
        execute(one, world, found)
    found |= names
    execute(block, world, found)
    return found


def execute(block: Block, world: World, names: dict[str, Any]) -> None:
    """Run one block as it stands, with the addresses of this world; tracebacks name its line of the page."""
    tree = ast.increment_lineno(parsed(world.put(block.text)), block.line)
    code = compile(tree, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names.setdefault("__name__", "__main__")
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def mounts(block: Block) -> bool:
    """Whether the block mounts callfuse in an app."""
    return any(text in block.text for text in MOUNTED)


@dataclass(frozen=True)
class Left:
    """What a block has left: its names, and the world in which it ran. `again()` runs it once more."""

    names: dict[str, Any]
    world: World
    again: Callable[[], None]

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def check_guarded(self, app: str) -> None:
        """An agent in a loop asks the app, streamed: two calls, then the model changes course, or a block ends it."""
        with served(self[app]) as url:
            assert run_agent(url, "looping", tool=client.TOOL) == 3
            assert run_agent(url, "stubborn", tool=client.TOOL) == 2

    def close(self) -> None:
        """Close clients of SDKs that are left open."""
        for one in self.names.values():
            if isinstance(one, anthropic.Anthropic | openai.OpenAI):
                one.close()


def can_run(block: Block, world: World, folder: Path) -> bool:
    """Whether everything is here that it imports, and that the reader's own modules import."""
    with stood_in(block, world, folder):
        return not any(missing(code) for code in (block.text, *(file.read_text() for file in folder.rglob("*.py"))))


def run(block: Block, world: World, folder: Path, check: Callable[[Left], None] | None = None) -> None:
    """Run a block, and look at what came of it: with the check that is given for it, or where it mounts an app, by an
    agent that asks that."""
    assert wrong_names(block.text) == []
    with stood_in(block, world, folder):
        assert missing(block.text) == [], "not installed for the tests: name in `given.ELSEWHERE` who runs this"
        names = run_page(block, world, given.NAMES.get(block.page, dict)())
        left = Left(names, world, lambda: execute(block, world, names))
        if check is not None:
            check(left)
        elif mounts(block):
            apps = [name for name in APPS if name in names]
            assert apps or name_of(block), "it mounts callfuse, and leaves no `app`: it needs a check of its own"
            for app in apps:
                left.check_guarded(app)
        left.close()
