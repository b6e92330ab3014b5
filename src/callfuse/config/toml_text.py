"""TOML: a text goes in, its value and the line of every key come out.

`tomllib` says where a text is wrong, but not where a key of a right one stands. So the text is cut into statements, by
asking `tomllib` after each line whether the statement is whole, and each is read by itself.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from callfuse.config.layers import Text
from callfuse.config.model import KeyPath, item_name

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def parse(text: str, name: str) -> Text:
    """What the text of a file called `name` holds."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Text(problems=[_syntax(name, str(error))])
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    lists: dict[KeyPath, int] = {}
    for line, statement, content in _statements(text):
        if statement.lstrip().startswith("["):
            *_, header = _keys(content)
            table = _table(header, lists, another=statement.lstrip().startswith("[["))
            for end in range(1, len(table) + 1):
                lines.setdefault(table[:end], line)
        else:
            lines.update({(*table, *path): line for path in _keys(content)})
    return Text(value, lines)


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each statement: the line in which it begins, its text, and what it says by itself. Comments say nothing."""
    statement = ""
    begin = 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        statement += line
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        if content:
            yield begin, statement, content
        statement, begin = "", number + 1


def _table(header: KeyPath, lists: dict[KeyPath, int], *, another: bool) -> KeyPath:
    """The table that a header opens, with the places of those that stand in lists; `another` is one more in a list."""
    if another:
        lists[header] = lists.get(header, -1) + 1
    path: KeyPath = ()
    for end, key in enumerate(header, 1):
        path = (*path, key)
        if header[:end] in lists:
            path = (*path, item_name(lists[header[:end]]))
    return path


def _keys(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key below a value, in a list by its place there; an empty table of a list has none."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _keys(item, (*path, item_name(at)))
    if isinstance(value, dict):
        for key, below in value.items():
            yield (*path, key)
            yield from _keys(below, (*path, key))


def _syntax(name: str, error: str) -> str:
    found = _PLACE.fullmatch(error)
    what = found[1] if found else error
    place = f", line {found[2]}, column {found[3]}" if found and found[2] else ", at its end" if found else ""
    return f"{name}{place}: this is no TOML: {what}"
