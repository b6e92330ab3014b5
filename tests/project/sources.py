"""The project's own files. In: nothing, or doctored text. Out: modules as syntax trees, documents as text."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "callfuse"


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package: its dotted name below `callfuse` ("" for the root) and its syntax tree."""

    name: str
    tree: ast.Module
    is_package: bool = False

    @property
    def package(self) -> str:
        """The top-level package (or file) that it belongs to, as the table of layers names it."""
        return self.name.partition(".")[0] or "__init__"

    def imports(self) -> Iterator[str]:
        """Every module that it imports, anywhere in it, by its absolute dotted name."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    yield from (alias.name for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    yield from self._imported_from(module or "", [alias.name for alias in names], level)
                case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _name(function) in _IMPORTERS:
                    yield name

    def _imported_from(self, module: str, names: list[str], level: int) -> Iterator[str]:
        """`from x import a` may import the module `x.a`; only of this package is that told apart."""
        if level:
            own = f"callfuse.{self.name}".rstrip(".").split(".")
            above = own[: len(own) - level + self.is_package]
            module = ".".join([*above, *([module] if module else [])])
        if module == "callfuse":
            yield from (f"callfuse.{name}" if name in top_level() else "callfuse" for name in names)
        else:
            yield module


_IMPORTERS = ("import_module", "__import__", "find_spec")


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def parsed(name: str, text: str) -> Module:
    """A module of this text."""
    return Module(name, ast.parse(text))


@cache
def top_level() -> frozenset[str]:
    """Every package and file directly below `callfuse`."""
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py"}
    return frozenset(found | {path.parent.name for path in SOURCE.glob("*/__init__.py")})


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, ast.parse(path.read_text()), is_package))
    return tuple(found)


def document(name: str) -> str:
    """A file of the project as text."""
    return (PROJECT / name).read_text()


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first Markdown table below a heading, without its head."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
