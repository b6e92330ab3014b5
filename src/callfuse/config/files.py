"""Read a file of settings, TOML if its suffix says so, else YAML, into a layer with the line of each value."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from callfuse.config.layers import Layer, layer_of
from callfuse.config.model import KeyPath, dotted_name, item_name
from callfuse.config.wording import format_value

MAX_REPEATED: Final = 10_000
"""The most values that aliases of a file may repeat. A file that shares an entry among a thousand tools needs fewer."""
_TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """A parsed file: its value (None if empty or broken), the line of each key, and problems."""

    value: object = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_file(path: str | os.PathLike[str], *, named_by: str = "") -> Layer:
    """Read a file of settings. Never raises: the layer of a broken file has its problems. `named_by`: where the path
    was set, for the message if the file cannot be read."""
    name = os.fspath(path)
    place = f"{name} ({named_by})" if named_by else name
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        return Layer(problems=[f"{place}: cannot read this file: {error.strerror or error}"])
    except UnicodeDecodeError as error:
        return Layer(problems=[f"{place}: cannot read this file: it is not UTF-8 (byte {error.start})"])
    except ValueError as error:
        return Layer(problems=[f"{place}: cannot read this file: {error}"])
    return parse(text, name)


def parse(text: str, name: str) -> Layer:
    """Parse the text of a file called `name` into a layer."""
    try:
        found = (parse_toml if name.lower().endswith(".toml") else parse_yaml)(text, name)
    except RecursionError:
        return Layer(problems=[f"{name}: too many nested brackets"])
    if found.value is None:
        return Layer(problems=found.problems)
    if not isinstance(found.value, Mapping):
        return Layer(
            problems=[f"{name}: contains {format_value(found.value)}; use a mapping with keys such as tool_call_loop"]
        )

    def source(path: KeyPath) -> str:
        return f"{name}, line {found.lines[path]}" if path in found.lines else name

    layer = layer_of(found.value, source)
    return replace(layer, problems=found.problems + layer.problems)


def parse_yaml(text: str, name: str, *, several: bool = False) -> Text:
    """Parse YAML. A key given twice is a problem, while PyYAML would silently keep the last. `several`: the value is
    the list of the documents."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        return Text(
            problems=[f"{_yaml_place(name, text, error)}: YAML does not allow the character {error.character!r}"]
        )
    try:
        root = _all_documents(loader) if several else loader.get_single_node()
        if _repeated(root) > MAX_REPEATED:
            return Text(problems=[f"{name}: its aliases repeat more than {MAX_REPEATED:,} values; write them out"])
        keys = list(_yaml_keys(root))  # before construct_document, which changes nodes with `<<`
        value = loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        return Text(problems=[_yaml_syntax(name, text, error)])
    except (ValueError, AttributeError, IndexError) as error:  # PyYAML's own errors, for invalid dates or numbers
        return Text(problems=[f"{name}: this is not valid YAML: {error}"])
    finally:
        loader.dispose()
    lines: dict[KeyPath, int] = {}
    twice: list[str] = []
    for path, line in keys:
        if path in lines:
            twice.append(f"{dotted_name(path)} ({name}): given twice, in lines {lines[path]} and {line}; keep one")
        lines[path] = line
    return Text(value, lines, twice)


def _all_documents(loader: yaml.SafeLoader) -> yaml.Node:
    """Return all documents of a text as one list."""
    documents = []
    while loader.check_node():
        documents.append(loader.get_node())
    return yaml.SequenceNode(loader.DEFAULT_SEQUENCE_TAG, documents)


def _repeated(root: yaml.Node | None) -> int:
    """Return how many more nodes there would be if each alias were expanded.

    An alias takes a few bytes and may refer to ten others, so ten lines may expand to billions of values. Each node is
    visited once.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # an alias may refer to a node that contains it
            below = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = [part for one in below for part in (one if isinstance(one, tuple) else (one,))]
            sizes[id(node)] += sum(map(size, parts))
        return sizes[id(node)]

    return 0 if root is None else size(root) - len(sizes)


def _yaml_keys(
    node: yaml.Node | None, path: KeyPath = (), above: Sequence[yaml.Node] = ()
) -> Iterator[tuple[KeyPath, int]]:
    """Yield each plain key below a node with its line. The key of a list's element is its index."""
    if node in above:  # an alias may refer to a node that contains it: no endless recursion
        return
    if isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            yield from _yaml_keys(item, (*path, item_name(at)), (*above, node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield (*path, key.value), key.start_mark.line + 1
                yield from _yaml_keys(value, (*path, key.value), (*above, node))


def _yaml_syntax(name: str, text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    if mark and _is_indented_by_tab(text, mark.index):
        return f"{name}, line {mark.line + 1}: indented with a tab; indent with spaces"
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    marked = any(word in f"{error.context} {error.problem}" for word in ("tag", "alias", "anchor"))
    hint = "; put text that begins with !, * or & in quotes" if marked else ""
    return f"{name}{place}: this is not valid YAML: {error.problem or error.context}{hint}"


def _is_indented_by_tab(text: str, index: int) -> bool:
    """Whether the character at an index is a tab with only spaces before it in its line."""
    before = text[:index].replace("\r", "\n").rpartition("\n")[2]
    return text[index : index + 1] == "\t" and not before.strip(" ")


def _yaml_place(name: str, text: str, error: yaml.reader.ReaderError) -> str:
    before = text[: error.position]
    return f"{name}, line {before.count(chr(10)) + 1}, column {error.position - before.rfind(chr(10))}"


def parse_toml(text: str, name: str) -> Text:
    """Parse TOML, and find the line of each key.

    `tomllib` has no line numbers. So the text is split into statements, and each is parsed by itself. A statement ends
    after the first line at which `tomllib` can parse it.
    """
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Text(problems=[_toml_syntax(name, str(error))])
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    lists: dict[KeyPath, int] = {}
    for line, statement, content in _toml_statements(text):
        if statement.lstrip().startswith("["):
            *_, header = _toml_keys(content)
            table = _toml_table(header, lists, another=statement.lstrip().startswith("[["))
            for end in range(1, len(table) + 1):
                lines.setdefault(table[:end], line)
        else:
            lines.update({(*table, *path): line for path in _toml_keys(content)})
    return Text(value, lines)


def _toml_statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield each statement: its first line, its text, and its value when parsed by itself. Comments are left out."""
    statement = ""
    begin = 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        statement += line
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # the value continues in the next line
        if content:
            yield begin, statement, content
        statement, begin = "", number + 1


def _toml_table(header: KeyPath, lists: dict[KeyPath, int], *, another: bool) -> KeyPath:
    """Return the path of the table that a header opens, with indexes for lists. `another`: it appends to a list."""
    if another:
        lists[header] = lists.get(header, -1) + 1
    path: KeyPath = ()
    for end, key in enumerate(header, 1):
        path = (*path, key)
        if header[:end] in lists:
            path = (*path, item_name(lists[header[:end]]))
    return path


def _toml_keys(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield each key below a value. The key of a list's element is its index. An empty table in a list has no key."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _toml_keys(item, (*path, item_name(at)))
    if isinstance(value, dict):
        for key, below in value.items():
            yield (*path, key)
            yield from _toml_keys(below, (*path, key))


def _toml_syntax(name: str, error: str) -> str:
    found = _TOML_PLACE.fullmatch(error)
    what = found[1] if found else error
    place = f", line {found[2]}, column {found[3]}" if found and found[2] else ", at its end" if found else ""
    return f"{name}{place}: this is not valid TOML: {what}"
