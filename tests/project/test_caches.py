"""Nothing that others write is kept without a bound in bytes: every cache of the package is found and looked at."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module

from callfuse.memo import BOUNDS
from tests.project.sources import Module, modules

MOST_BYTES = 8 * 1024 * 1024
"""What the texts of one remembered function may take."""

OWN_KEYS = {
    "callfuse.config._warn_once": "callfuse's own warnings",
    "callfuse.config.environment._lists": "no key",
    "callfuse.config.environment.variables": "no key",
    "callfuse.reference.keys._classes": "modules of callfuse",
    "callfuse.reference.keys.descriptions": "classes of settings",
    "callfuse.dialects.item_list._answers": "lives as long as one reading of a request",
    "callfuse.observe.json_lines._moment": "one entry, a number",
    "callfuse.observe.otel._gauges": "the host's providers, eight at most",
    "callfuse.offline.conformal.trial": "lives as long as one trial of `tune`",
    "callfuse.observe.prometheus._in_files": "no key",
}
"""Caches whose keys are callfuse's or the host's own, and what they are."""

BOUNDED_BESIDES = {"bool | None", "Collection[str]", "tuple[str, ...]", "callfuse.detect.settings.Similarity"}
"""Arguments of remembered functions that are no texts: flags, and what settings or callfuse itself name."""

CONTAINERS = {"Counter", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "defaultdict", "deque"}
CONTAINERS |= {"dict", "list", "set"}

OWN_CONTAINERS = {
    "asgi.silence._WAITS": "event loops, weakly",
    "dialects.base._NOTHING": "an empty object, never changed",
    "dialects.session_ids.NOTHING": "an empty object, never changed",
    "mcp.messages._NOTHING": "an empty object, never changed",
    "memo.BOUNDS": "functions of callfuse",
    "model.timeline.NONE_CUT_OFF": "an empty mapping, never changed",
    "observe.fields._names": "classes of events",
}
"""Containers of modules that begin empty, and what is put into them."""


def uses(module: Module, *names: str) -> Iterator[str]:
    """Where a module uses one of these names: the function that it decorates or stands in, else the line."""
    local = {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("functools", "callfuse.memo")
        for alias in node.names
        if alias.name in names
    }
    if not (local or "functools" in module.imports()):
        return
    within: dict[int, str] = {}
    for node in ast.walk(module.tree):  # what is inside comes later
        if isinstance(node, ast.FunctionDef):
            within |= dict.fromkeys(map(id, ast.walk(node)), node.name)
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name) if name in local:
                pass
            case ast.Attribute(value=ast.Name(id="functools" | "memo"), attr=name) if name in names:
                pass
            case _:
                continue
        yield f"callfuse.{module.name}.{within.get(id(node), getattr(node, 'lineno', 0))}"


def empty_containers(tree: ast.Module) -> Iterator[str]:
    """The names of a module's or a class's own containers that begin empty."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for body in (tree.body, *(node.body for node in classes)):
        for node in body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            match node.value:
                case ast.Dict(keys=[]) | ast.List(elts=[]):
                    pass
                case ast.Call(func=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))) if name in CONTAINERS:
                    pass
                case _:
                    continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(target) for target in targets)


def test_every_cache_is_bounded_or_keyed_by_our_own() -> None:
    """A new `lru_cache` becomes a `remembered` function, or has keys that nobody else writes and says so here."""
    found = {use for module in modules() if module.name != "memo" for use in uses(module, "lru_cache", "cache")}
    assert found == OWN_KEYS.keys()


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    """Each function by the lengths of its texts, and all its other arguments by their types."""
    found = {use for module in modules() if module.name != "memo" for use in uses(module, "remembered")}
    assert found
    for name in found:
        module, _, function = name.rpartition(".")
        parameters = inspect.signature(getattr(import_module(module), function)).parameters.values()
        types = {inspect.formatannotation(one.annotation) for one in parameters}
        assert BOUNDS[name].bytes <= MOST_BYTES, name
        assert {one.removeprefix("collections.abc.") for one in types} <= {"str", "bytes", *BOUNDED_BESIDES}, name


def test_every_container_of_a_module_is_known() -> None:
    """What a module keeps for as long as the process lives is named here with what it keeps."""
    found = {f"{module.name}.{name}" for module in modules() for name in empty_containers(module.tree)}
    assert found == OWN_CONTAINERS.keys()
