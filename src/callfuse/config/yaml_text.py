"""YAML: a text goes in, its value and the line of every key come out.

Stricter than YAML itself in one point: a key given twice is a problem, where PyYAML would silently keep the last.
"""

from collections.abc import Iterator, Sequence

import yaml

from callfuse.config.layers import Text
from callfuse.config.model import KeyPath, dotted, item_name


def parse(text: str, name: str) -> Text:
    """What the text of a file called `name` holds."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        return Text(problems=[f"{_place(name, text, error)}: YAML has no such character: {error.character!r}"])
    try:
        root = loader.get_single_node()
        keys = list(_keys(root))  # before the construction, which rewrites nodes that merge others with `<<`
        value = loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        return Text(problems=[_syntax(name, error)])
    finally:
        loader.dispose()
    lines: dict[KeyPath, int] = {}
    twice: list[str] = []
    for path, line in keys:
        if path in lines:
            twice.append(f"{dotted(path)} ({name}): given twice, in lines {lines[path]} and {line}; keep one")
        lines[path] = line
    return Text(value, lines, twice)


def _keys(node: yaml.Node | None, path: KeyPath = (), above: Sequence[yaml.Node] = ()) -> Iterator[tuple[KeyPath, int]]:
    """Every plain key below the node as it stands in the text, with its line; in a list by its place there."""
    if node in above:  # an alias may name a node that it stands in
        return
    if isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            yield from _keys(item, (*path, item_name(at)), (*above, node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield (*path, key.value), key.start_mark.line + 1
                yield from _keys(value, (*path, key.value), (*above, node))


def _syntax(name: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    marked = any(word in f"{error.context} {error.problem}" for word in ("tag", "alias", "anchor"))
    hint = "; put text that begins with !, * or & in quotes" if marked else ""
    return f"{name}{place}: this is no YAML: {error.problem or error.context}{hint}"


def _place(name: str, text: str, error: yaml.reader.ReaderError) -> str:
    before = text[: error.position]
    return f"{name}, line {before.count(chr(10)) + 1}, column {error.position - before.rfind(chr(10))}"
