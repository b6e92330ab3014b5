"""The page of the public names has every one, every one is there and says what it is, and the docs use no other."""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.project.sources import PROJECT, Module, document, modules, quoted, rows
from tests.project.test_layers import FOREIGN, loaded_by
from tests.project.test_surface import public_names

PAGE = document("docs/api.md")
EVENTS = "callfuse.observe.events"
FRAMEWORKS = "callfuse.integrations."


def sections(page: str) -> dict[str, str]:
    """The text of each section that is about a module."""
    parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {quoted(head)[0]: text for head, text in found.items() if head.startswith("`")}


@cache
def named() -> dict[str, dict[str, str]]:
    """The names of each module on the page, members of classes with a dot, with what the page says of them."""
    found = {}
    for module in sections(PAGE):
        found[module] = {quoted(name)[0]: text for name, text in rows(PAGE, f"`{module}`")}
    table = {quoted(name)[0]: text for name, _, text in rows(document("docs/observing.md"), "Events")}
    found[EVENTS] = table | dict.fromkeys(quoted(sections(PAGE)[EVENTS])[:2], sections(PAGE)[EVENTS])
    return found


def source(module: str) -> Module:
    """A module's own text, which can be read where what it imports is not installed."""
    return next(one for one in modules() if f"callfuse.{one.name}".rstrip(".") == module)


def describes(module: Module, name: str) -> str:
    """The docstring of a name that a module defines: in a class or a function, or below an assignment."""
    for node, below in zip(module.tree.body, [*module.tree.body[1:], ast.Pass()], strict=True):
        match node, below:
            case ast.ClassDef() | ast.FunctionDef(), _ if node.name == name:
                return ast.get_docstring(node) or ""
            case (
                ast.AnnAssign(target=ast.Name(id=target)) | ast.Assign(targets=[ast.Name(id=target)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ) if target == name:
                return text
            case _:
                pass
    return ""


def documentation(module: str, name: str) -> str:
    """The docstring of a name, or of a member of a class."""
    if module.startswith(FRAMEWORKS):
        return describes(source(module), name)
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return inspect.getdoc(found) or ""


def imported(text: str) -> list[tuple[str, str]]:
    """The modules of callfuse that Python in a text imports from, each with a name."""
    lines = re.findall(r"^\s*from (callfuse[\w.]*) import (.+)$", text, re.MULTILINE)
    names = [(module, name.strip()) for module, names in lines for name in names.partition("#")[0].split(",")]
    return names + [(module, "") for module in re.findall(r"^\s*import (callfuse[\w.]*)", text, re.MULTILINE)]


def unknown(text: str) -> list[str]:
    """What a text imports that is not on the page."""
    found = []
    for module, name in imported(text):
        is_module = f"{module}.{name}" in named()
        if module not in named() or (name and name not in named()[module] and not is_module):
            found.append(f"{module}: {name}")
    return found


def test_the_page_names_what_is_public() -> None:
    """Every name of the modules that it is about, and none that they do not have."""
    for module, names in named().items():
        assert sorted(name for name in names if "." not in name) == sorted(public_names(source(module)) or ()), module


def test_every_name_has_a_line() -> None:
    """On the page, and in the code."""
    for module, names in named().items():
        for name, line in names.items():
            assert len(line.split()) > 1, f"{module}: {name}"
            assert name == "__version__" or documentation(module, name), f"{module}: {name}"


def test_a_member_is_of_a_class_of_the_page() -> None:
    """And none begins with an underscore."""
    for names in named().values():
        members = [name for name in names if "." in name]
        assert {name.partition(".")[0] for name in members} <= set(names)
        assert not [name for name in members if "._" in name]


PAGES = [path for folder in ("docs", "examples") for path in sorted((PROJECT / folder).rglob("*.*")) if path.is_file()]


@pytest.mark.parametrize(
    "path",
    [PROJECT / "README.md", *(path for path in PAGES if path.suffix in {".md", ".py"})],
    ids=lambda path: path.relative_to(PROJECT).as_posix(),
)
def test_what_is_shown_is_public(path: Path) -> None:
    """Whoever copies an example rests on nothing that may change."""
    assert unknown(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from callfuse.guard import Guard",
        "    from callfuse import LoopDetector, Secret",
        "import callfuse.offline.judging",
        "from callfuse.observe.bus import Bus",
    ],
)
def test_a_private_name_is_found(line: str) -> None:
    """Modules that the page does not name, and names that it does not name of a module."""
    assert len(unknown(line)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("module", [name for name, text in sections(PAGE).items() if "Needs no extra" in text])
def test_what_needs_no_extra_loads_none(module: str) -> None:
    """It can be imported in a plain installation."""
    missing = f"import sys; sys.modules |= dict.fromkeys({sorted(FOREIGN)})"
    assert "callfuse" in loaded_by(f"{missing}; from {module} import *")
