"""The YAML file: a path goes in, a layer comes out whose every value knows its line.

Stricter than YAML itself in one point: a key given twice is a problem, where PyYAML would silently keep the last.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from callfuse.config.layers import Layer, layer_of
from callfuse.config.model import KeyPath, dotted
from callfuse.config.wording import shown


def read_file(path: str | os.PathLike[str]) -> Layer:
    """The file's layer. A file that cannot be read or is no YAML mapping is a layer of one problem."""
    name = os.fspath(path)
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        return Layer(problems=[f"{name}: cannot read this file: {error.strerror or error}"])
    except (UnicodeDecodeError, ValueError) as error:
        return Layer(problems=[f"{name}: cannot read this file: {_reason(error)}"])
    return parse(text, name)


def parse(text: str, name: str) -> Layer:
    """The layer of the text of a file called `name`."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        return Layer(problems=[f"{_place(name, text, error)}: YAML has no such character: {error.character!r}"])
    try:
        root = loader.get_single_node()
        keys = list(_keys(root))  # before the construction, which rewrites nodes that merge others with `<<`
        value = loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        return Layer(problems=[_syntax(name, error)])
    finally:
        loader.dispose()
    if value is None:
        return Layer()
    if not isinstance(value, dict):
        return Layer(problems=[f"{name}: holds {shown(value)}; use a mapping with keys such as tool_call_loop"])
    lines: dict[KeyPath, int] = {}
    twice: list[str] = []
    for path, line in keys:
        if path in lines:
            twice.append(f"{dotted(path)} ({name}): given twice, in lines {lines[path]} and {line}; keep one")
        lines[path] = line

    def source(path: KeyPath) -> str:
        return f"{name}, line {lines[path]}" if path in lines else name

    layer = layer_of(value, source)
    return Layer(layer.given, twice + layer.problems)


def _keys(node: yaml.Node | None, path: KeyPath = (), above: Sequence[yaml.Node] = ()) -> Iterator[tuple[KeyPath, int]]:
    """Every plain key below the node as it stands in the text, with its line."""
    if not isinstance(node, yaml.MappingNode) or node in above:  # an alias may name a node that it stands in
        return
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            yield (*path, key.value), key.start_mark.line + 1
            yield from _keys(value, (*path, key.value), (*above, node))


def _syntax(name: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{name}{place}: this is no YAML: {error.problem or error.context}"


def _place(name: str, text: str, error: yaml.reader.ReaderError) -> str:
    before = text[: error.position]
    return f"{name}, line {before.count(chr(10)) + 1}, column {error.position - before.rfind(chr(10))}"


def _reason(error: ValueError) -> str:
    return f"it is not UTF-8 (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)
