"""Measure the size and shape of the package's code, for the limits in `tests/project/test_house.py`.

    python -m benchmarks.house [--root DIR]

Prints lines and files for each room of `src/callfuse` (a room is a top-level package; single files count as one room),
lines of tests, and everything that exceeds a limit below: attributes of a class, lines and complexity of a function,
missing docstrings, broad excepts. It only reads the files, and imports nothing of the package.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
MOST_ATTRIBUTES: Final = 14
"""The most attributes of a class, including inherited ones."""
MOST_LINES: Final = 60
"""The most lines of a function, including docstring and signature."""
MOST_PATHS: Final = 15
"""The highest cyclomatic complexity of a function."""
LONG_FILE: Final = 450
"""Files with more lines are printed, but no test limits them."""
SMALL: Final = 4
"""A private function with fewer lines that is called once is printed."""
CORE_ROOMS: Final = (
    "wire", "model", "dialects", "detect", "policy", "conversations", "guard", "asgi", "config", "stores",
)  # fmt: skip
"""The packages that guard an exchange. The others are built on these, or have only a file or two."""
CORE_GOAL: Final = 24_000
"""The most lines of the core."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Parent = ast.Module | ast.ClassDef
BROAD: Final = {"Exception", "BaseException"}
FIELD_BASES: Final = {"BaseModel", "NamedTuple", "TypedDict", "Protocol"}
"""Bases whose annotated names are attributes of each instance, with or without a default."""


@dataclass(frozen=True)
class File:
    """A Python file: its dotted name below its folder ("callfuse" itself: "callfuse") and its text."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The top-level package that it belongs to; "(files)" for a single file."""
        return self.name.partition(".")[0] if self.is_package or "." in self.name else "(files)"

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return len(self.text.splitlines())

    @cached_property
    def code_lines(self) -> int:
        """Its number of lines without empty ones, comments and docstrings."""
        layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        found = {
            line for token in tokens if token.type not in layout for line in range(token.start[0], token.end[0] + 1)
        }
        texts = (node for node in ast.walk(self.tree) if isinstance(node, ast.Expr) and _is_text(node.value))
        return len(found.difference(line for node in texts for line in _span(node)))

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """The module and original name of each name that is imported from a module of callfuse at the top of the
        file."""
        nodes = (node for node in self.tree.body if isinstance(node, ast.ImportFrom))
        return {
            alias.asname or alias.name: (_below_callfuse(node.module), alias.name)
            for node in nodes
            for alias in node.names
            if node.module and node.module.partition(".")[0] == "callfuse"
        }

    @cached_property
    def comments(self) -> dict[int, str]:
        """The comment of each line that has one."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """Yield each class and its dotted name, including nested ones."""
        for name, node, _ in self._definitions:
            if isinstance(node, ast.ClassDef):
                yield name, node

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yield each function or method and its dotted name, including nested ones."""
        for name, node, _ in self._definitions:
            if isinstance(node, Function):
                yield name, node

    def undocumented(self) -> Iterator[str]:
        """Yield the dotted names of public definitions without a docstring: modules, classes, functions, methods. Names
        with a leading underscore are not public, nor is anything inside them or inside a function."""
        if not ast.get_docstring(self.tree):
            yield self.name
        for name, node, is_public in self._definitions:
            if is_public and not ast.get_docstring(node) and "overload" not in map(_last_name, node.decorator_list):
                yield name

    @cached_property
    def _definitions(self) -> tuple[tuple[str, ast.ClassDef | Function, bool], ...]:
        """Name, definition, and whether it is public."""
        found: list[tuple[str, ast.ClassDef | Function, bool]] = []
        waiting: list[tuple[str, ast.AST, bool]] = [(self.name, self.tree, True)]
        while waiting:
            prefix, node, is_public = waiting.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.ClassDef | Function):
                    name, seen = f"{prefix}.{child.name}", is_public and not child.name.startswith("_")
                    found.append((name, child, seen))
                    waiting.append((name, child, seen and isinstance(child, ast.ClassDef)))
                elif isinstance(child, _HOLDS_STATEMENTS):
                    waiting.append((prefix, child, is_public))
        return tuple(found)


_HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""Nodes that can contain a definition."""


@dataclass(frozen=True)
class Catch:
    """A place that catches every exception, and the comment that says why ("" if there is none)."""

    place: str
    line: int
    reason: str


def files_of(folder: Path) -> list[File]:
    """Return every Python file below a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(File(name or "callfuse", path.read_text(), is_package and bool(name)))
    return found


def attributes(files: Sequence[File]) -> dict[str, int]:
    """Return how many attributes an instance of each class has.

    It counts names assigned on the first parameter of a method, `__slots__`, and the fields of dataclasses, named
    tuples, models and protocols, including those of base classes in the same files. Class constants do not count.
    """
    classes = {name: (file, node) for file in files for name, node in file.classes()}
    modules = {file.name: file for file in files}
    known: dict[str, frozenset[str]] = {}

    def resolve(file: File, name: str) -> str:
        if f"{file.name}.{name}" in classes:
            return f"{file.name}.{name}"
        module, original = file.imported.get(name, ("", ""))
        return resolve(modules[module], original) if module in modules else ""

    def collect(name: str) -> frozenset[str]:
        if name not in known:
            known[name] = frozenset()  # in case a class seems to be its own base
            file, node = classes[name]
            bases = [found for base in node.bases if (found := resolve(file, _last_name(base)))]
            inherits_fields = any(_has_fields(classes[base][1]) for base in bases)
            inherited = (collect(base) for base in bases)
            known[name] = frozenset().union(_own_attributes(node, fields=inherits_fields), *inherited)
        return known[name]

    return {name: len(collect(name)) for name in classes}


def with_helpers(files: Sequence[File]) -> dict[str, int]:
    """Return how many attributes each class has together with its private helpers, so that splitting an object hides
    none.

    A helper is a class with a leading underscore that only this class uses, directly or through private functions and
    other helpers that only it uses. Inherited attributes of the class are included; attributes that a helper inherits
    from a public class are not.
    """
    counts = attributes(files)
    found = dict(counts)
    for file in files:
        owners = _owners(file)
        for node in (one for one in file.tree.body if isinstance(one, ast.ClassDef)):
            owner = f"{file.name}.{_owner_of(node.name, owners)}"
            if owner in counts:
                found[owner] += len(_private_attributes(file, node))
    return found


def _private_attributes(file: File, node: ast.ClassDef) -> set[str]:
    """Return the attributes of a class, with those of its private bases in the same file."""
    found = _own_attributes(node, fields=False)
    for base in (one for one in file.tree.body if isinstance(one, ast.ClassDef)):
        if base.name.startswith("_") and base.name in map(_last_name, node.bases):
            found |= _private_attributes(file, base)
    return found


def _owners(file: File) -> dict[str, str]:
    """Return the only definition that uses a private class or function, for each that has just one. Being a base does
    not count as use."""
    users: dict[str, set[str]] = {}
    defined = {node.name: node for node in file.tree.body if isinstance(node, ast.ClassDef | Function)}
    for at, node in enumerate(file.tree.body):
        user = node.name if isinstance(node, ast.ClassDef | Function) else f"line {at}"
        bases = set(map(_last_name, node.bases)) if isinstance(node, ast.ClassDef) else set()
        for name in _names(node) & defined.keys() - bases - {user}:
            users.setdefault(name, set()).add(user)
    return {name: min(by) for name, by in users.items() if name.startswith("_") and len(by) == 1}


def _owner_of(name: str, owners: Mapping[str, str]) -> str:
    """Return the public definition at the end of the chain of owners; empty for a private name without an owner."""
    seen = {name}
    while name in owners and owners[name] not in seen:
        name = owners[name]
        seen.add(name)
    return name if len(seen) > 1 else ""


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _own_attributes(node: ast.ClassDef, *, fields: bool) -> set[str]:
    found: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            constant = _last_name(item.annotation) in ("ClassVar", "Final")
            if not constant and (item.value is None or fields or _has_fields(node)):
                found.add(item.target.id)
        elif isinstance(item, ast.Assign) and any(_last_name(target) == "__slots__" for target in item.targets):
            found.update(str(one.value) for one in ast.walk(item.value) if isinstance(one, ast.Constant))
        elif (
            isinstance(item, Function) and item.args.args and "staticmethod" not in map(_last_name, item.decorator_list)
        ):
            found |= _assigned_on(item.args.args[0].arg, item)
    return found - {"__dict__", "__weakref__"}


def _assigned_on(owner: str, function: Function) -> set[str]:
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == owner}


def _has_fields(node: ast.ClassDef) -> bool:
    return "dataclass" in map(_last_name, node.decorator_list) or bool(FIELD_BASES & set(map(_last_name, node.bases)))


def length(function: Function) -> int:
    """Return the number of lines from `def` to the end."""
    return len(_span(function))


def paths(function: Function) -> int:
    """Return the cyclomatic complexity as mccabe counts it: one more than the number of branching statements.

    These are `if`, `for`, `while`, `case` (except a last one that matches all), `except`, and the `else` of a `try`. A
    nested function counts as one, plus its branches.
    """
    return 1 + sum(map(_branches, _inside(function)))


def conditions(function: Function) -> int:
    """Return the cyclomatic complexity with conditions: `paths`, and each `and`, `or`, conditional expression,
    comprehension and its `if`s, because readers must follow these branches, too."""
    return paths(function) + sum(map(_choices, ast.walk(function)))


def _inside(function: Function) -> Iterator[ast.AST]:
    return (node for node in ast.walk(function) if node is not function)


def _branches(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
            return 1
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return 1
        case ast.Try(orelse=orelse) | ast.TryStar(orelse=orelse):
            return int(bool(orelse))
        case ast.Match(cases=cases):
            last = cases[-1]
            return len(cases) - (last.guard is None and _matches_all(last.pattern))
        case _:
            return 0


def _choices(node: ast.AST) -> int:
    match node:
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.IfExp():
            return 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
        case _:
            return 0


def _matches_all(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchAs(pattern=None):
            return True
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _matches_all(inner)
        case ast.MatchOr(patterns=patterns):
            return any(map(_matches_all, patterns))
        case _:
            return False


def catches(file: File) -> Iterator[Catch]:
    """Yield every `except` or `suppress` of all exceptions. The reason is a comment on its line or on an adjacent one;
    `noqa` alone is not a reason."""
    places = {line: name for name, function in sorted(file.functions()) for line in _span(function)}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type
            is_broad = caught is None or _is_broad(caught)
        elif isinstance(node, ast.Call) and _last_name(node.func) == "suppress":
            is_broad = any(map(_is_broad, node.args))
        else:
            continue
        if is_broad:
            texts = (_reason(file.comments.get(line, "")) for line in (node.lineno, node.lineno - 1, node.lineno + 1))
            yield Catch(places.get(node.lineno, file.name), node.lineno, next(filter(None, texts), ""))


def _is_broad(caught: ast.expr) -> bool:
    one_of = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(_last_name(one) in BROAD for one in one_of)


def _reason(comment: str) -> str:
    return re.sub(r"#|noqa(: [A-Z]+\d+(, ?[A-Z]+\d+)*)?", "", comment).strip(" -")


def _last_name(node: ast.expr) -> str:
    """Return `c` for `c`, `b.c`, `b.c(...)` and `b.c[...]`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _below_callfuse(module: str | None) -> str:
    return (module or "").partition(".")[2] or "callfuse"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def core_lines(files: Sequence[File]) -> int:
    """Return the number of lines in the core's rooms."""
    return sum(file.lines for file in files if file.room in CORE_ROOMS)


def used_once(files: Sequence[File]) -> Iterator[str]:
    """Yield private functions and methods of at most three lines that are called in only one place, and could be
    inlined. Not those that are passed as values, decorated, or defined in several places."""
    for file in files:
        small = [(name, node) for name, node in file.functions() if _is_small(node)]
        defined = Counter(node.name for _, node in file.functions())
        called = Counter(_last_name(node.func) for node in ast.walk(file.tree) if isinstance(node, ast.Call))
        named = Counter(_last_name(node) for node in ast.walk(file.tree) if isinstance(node, ast.Name | ast.Attribute))
        for name, node in small:
            if defined[node.name] == called[node.name] == named[node.name] == 1:
                yield name


def _is_small(node: Function) -> bool:
    private = node.name.startswith("_") and not node.name.endswith("__")
    return private and length(node) < SMALL and not node.decorator_list


def named_twice(files: Sequence[File]) -> dict[str, list[str]]:
    """Return the modules of each class name that several modules define."""
    found: dict[str, list[str]] = {}
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name.lstrip("_"), []).append(file.name)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def over(figures: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return the figures that exceed a limit, the largest first."""
    return {name: figure for name, figure in sorted(figures.items(), key=lambda item: -item[1]) if figure > limit}


def of_functions(files: Sequence[File], measure: Callable[[Function], int]) -> dict[str, int]:
    """Return a figure of each function."""
    found: dict[str, int] = {}
    for file in files:
        for name, function in file.functions():
            found[name] = max(measure(function), found.get(name, 0))  # properties and overloads share a name
    return found


def print_rooms(files: Sequence[File]) -> None:
    """Print lines and files of each room, and of all."""
    tables: tuple[Counter[str], Counter[str], Counter[str]] = (Counter(), Counter(), Counter())
    for file in files:
        for table, figure in zip(tables, (1, file.lines, file.code_lines), strict=True):
            table[file.room] += figure
    print(f"{'room':<16}{'files':>7}{'lines':>9}{'of code':>9}")
    for room in sorted(tables[0], key=lambda room: -tables[1][room]):
        print(f"{room:<16}" + "".join(f"{table[room]:>{7 + 2 * bool(at)},}" for at, table in enumerate(tables)))
    print(f"{'all':<16}" + "".join(f"{table.total():>{7 + 2 * bool(at)},}" for at, table in enumerate(tables)))


def print_over(what: str, figures: Mapping[str, int], limit: int) -> None:
    """Print the largest figure, and all that exceed the limit."""
    largest = max(figures, key=lambda name: figures[name])
    exceeding = over(figures, limit)
    print(f"\n{what}: at most {figures[largest]} ({largest}), limit {limit}, {len(exceeding)} over")
    for name, figure in exceeding.items():
        print(f"  {figure:>4}  {name}")


def print_names(what: str, names: Sequence[str]) -> None:
    """Print the number of names, and each name."""
    print(f"\n{what}: {len(names)}")
    print("".join(f"  {name}\n" for name in names), end="")


def main(arguments: list[str] | None = None) -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=PROJECT, help="of the project to be counted")
    root: Path = parser.parse_args(arguments).root
    files, tests = files_of(root / "src" / "callfuse"), files_of(root / "tests")
    print_rooms(files)
    print(f"{'core':<16}{core_lines(files):>16,}, to be {CORE_GOAL:,}")
    print(f"{'tests':<16}{len(tests):>7,}{sum(file.lines for file in tests):>9,}")
    print_over("attributes of a class", attributes(files), MOST_ATTRIBUTES)
    print_over("attributes of a class with its private helpers", with_helpers(files), MOST_ATTRIBUTES)
    print_over("lines of a function", of_functions(files, length), MOST_LINES)
    print_over("complexity of a function", of_functions(files, paths), MOST_PATHS)
    print_over("complexity with conditions", of_functions(files, conditions), MOST_PATHS)
    print_over("lines of a file", {file.name: file.lines for file in files}, LONG_FILE)
    print_names(f"private functions shorter than {SMALL} lines, called once", list(used_once(files)))
    print_names("names of several classes", [f"{name}: {', '.join(at)}" for name, at in named_twice(files).items()])
    missing = [name for file in files for name in file.undocumented()]
    print_names("public docstrings missing", missing)
    broad = [caught for file in files for caught in catches(file)]
    print(f"\nbroad excepts: {len(broad)}")
    for caught in broad:
        print(f"  {caught.place}, line {caught.line}: {caught.reason or '(no reason given)'}")


if __name__ == "__main__":
    main()
