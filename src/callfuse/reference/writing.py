"""Write values into the section `tool_call_loop` of a file of settings, and leave every other byte unchanged.

Comments, order and anchors stay, because the text is edited, not generated: an existing value is replaced in its place,
and a new key is added at the head of its section. The result is read again and compared with the intended values. A
file whose notation cannot be edited is refused, and stays unchanged.
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from callfuse.config.files import parse_toml, parse_yaml
from callfuse.config.model import KeyPath
from callfuse.errors import ConfigError

SECTION: Final = "tool_call_loop"
_TOML_KEY: Final = re.compile(r"\s*(?:[\w-]+|\"[^\"\n]*\")(?:\s*\.\s*(?:[\w-]+|\"[^\"\n]*\"))*\s*=\s*")
_BARE_KEY: Final = re.compile(r"[\w-]+", re.ASCII)
_TOML_COMMENT: Final = re.compile(r"\s*#[^\n\"']*$")

Values = Mapping[str, Any]
"""Settings of the section: numbers, booleans and texts, or a mapping of these for a subsection."""


def written_into(text: str, name: str, values: Values, comments: tuple[str, ...] = ()) -> str:
    """Return the text of the file `name` (TOML by its suffix, else YAML) with these values in `tool_call_loop`.

    `comments` are lines before a new section. Raises ConfigError if the file is broken, or if its notation cannot be
    edited.
    """
    is_toml = name.lower().endswith(".toml")
    parse = parse_toml if is_toml else parse_yaml
    before = parse(text, name)
    if before.problems or not isinstance(before.value, Mapping | None):
        raise ConfigError("\n".join(before.problems) or f"{name}: contains no mapping with keys such as {SECTION}")
    wanted = _merged(before.value or {}, {SECTION: values})
    has_crlf = 0 < text.count("\n") == text.count("\r\n")
    edited = text.replace("\r\n", "\n") if has_crlf else text
    edited = (_toml_edited if is_toml else _yaml_edited)(edited, values, "".join(f"# {one}\n" for one in comments))
    edited = edited.replace("\n", "\r\n") if has_crlf else edited
    after = parse(edited, name)
    if after.problems or after.value != wanted:
        raise ConfigError(
            f"{name}: {SECTION} is written in a way that cannot be edited safely (aliases, merge keys, inline "
            "tables), so the file is unchanged. Write to a new file, and copy its content"
        )
    return edited


def section_in(text: str, name: str) -> Values:
    """Return the values of `tool_call_loop` in the text of the file `name`; empty if there are none or it cannot be
    read."""
    value = (parse_toml if name.lower().endswith(".toml") else parse_yaml)(text, name).value
    section = value.get(SECTION) if isinstance(value, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def replace_file(path: Path, text: str) -> Path | None:
    """Write a file atomically, and keep its old content as a backup. Returns the path of the backup; None if there was
    no file. Raises OSError, and then leaves the file unchanged."""
    path = path.resolve()
    before = path.read_bytes() if path.exists() else None
    if before == text.encode():
        return None
    backup = None if before is None else next(one for one in _backups(path) if not one.exists())
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(path.stat().st_mode & 0o777 if backup else 0o666 & ~_umask())
        if backup and before is not None:
            with backup.open("xb") as copy:
                copy.write(before)
            backup.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except OSError as error:
        if temporary:
            temporary.unlink(missing_ok=True)
        error.filename = str(path)
        raise
    return backup


def _backups(path: Path) -> Iterator[Path]:
    """Yield names for a backup: `callfuse.yaml.bak`, `callfuse.yaml.bak2`, ..."""
    yield path.with_name(f"{path.name}.bak")
    number = 2
    while True:
        yield path.with_name(f"{path.name}.bak{number}")
        number += 1


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _merged(old: Mapping[Any, Any], new: Values) -> dict[Any, Any]:
    """Merge new values into old ones, key by key, down to values that are not mappings."""
    found = deepcopy(dict(old))
    for key, value in new.items():
        there = found.get(key)
        if isinstance(value, Mapping):
            value = _merged(there if isinstance(there, Mapping) else {}, value)
        found[key] = value
    return found


def _yaml_edited(text: str, values: Values, comments: str) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    section = _child(root, SECTION)
    if isinstance(section, yaml.ScalarNode) and section.tag.endswith(":null"):
        return f"{text[: section.start_mark.index]} {_flow(values)}{text[section.end_mark.index :]}"
    if not isinstance(section, yaml.MappingNode):
        block = yaml.safe_dump({SECTION: dict(values)}, sort_keys=False, allow_unicode=True)
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{comments}{block}"
    edits = list(_yaml_edits(text, section, values))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _yaml_edits(text: str, node: yaml.MappingNode, values: Values) -> Iterator[tuple[int, int, str]]:
    """Yield the edits of the text: begin, end, new text."""
    added: list[str] = []
    for key, value in values.items():
        there = _child(node, key)
        if isinstance(value, Mapping) and isinstance(there, yaml.MappingNode):
            yield from _yaml_edits(text, there, value)
        elif there is not None:
            end = there.end_mark.index
            while end > there.start_mark.index and text[end - 1].isspace():  # a block's end is the next key's beginning
                end -= 1
            yield there.start_mark.index, end, _flow(value)
        else:
            added.append(f"{_yaml_key(key)}: {_flow(value)}")
    if not added:
        return
    if node.flow_style:
        at = node.start_mark.index + 1
        yield at, at, ", ".join(added) + (", " if node.value else "")
    else:
        at = node.value[0][0].start_mark.index
        column = node.value[0][0].start_mark.column
        yield at, at, "".join(f"{one}\n{' ' * column}" for one in added)


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if isinstance(name, yaml.ScalarNode) and name.value == key), None)


def _flow(value: Any) -> str:
    """Format a value on one line as YAML. For a scalar, this is also TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml_key(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _yaml_key(key: str) -> str:
    """Format a key as YAML: plain if YAML reads it as a text, else quoted."""
    return key if _BARE_KEY.fullmatch(key) and yaml.safe_load(key) == key else json.dumps(key, ensure_ascii=False)


def _toml_edited(text: str, values: Values, comments: str) -> str:
    wanted = dict(_flat(values, (SECTION,)))
    table: KeyPath = ()
    lines: list[str] = []
    heads: dict[KeyPath, int] = {}
    for line in text.splitlines(keepends=True):
        path = _path_of(line, table)
        if path is not None and line.lstrip().startswith("["):
            table = path
            heads.setdefault(table, len(lines))
        elif path in wanted and (begin := _TOML_KEY.match(line)):
            comment = _TOML_COMMENT.search(line.rstrip("\n"))
            line = f"{begin[0]}{_flow(wanted.pop(path))}{comment[0] if comment else ''}\n"
        lines.append(line)
    return _toml_extended(lines, heads, wanted, comments)


def _toml_extended(
    lines: list[str], heads: Mapping[KeyPath, int], missing: Mapping[KeyPath, Any], comments: str
) -> str:
    """Return the lines with missing values added, each under the head of the nearest table, by its line in `heads`."""
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    added: dict[KeyPath, list[str]] = {}
    for path, value in missing.items():
        head = next((path[:end] for end in range(len(path) - 1, 0, -1) if path[:end] in heads), (SECTION,))
        key = ".".join(one if _BARE_KEY.fullmatch(one) else json.dumps(one) for one in path[len(head) :])
        added.setdefault(head, []).append(f"{key} = {_flow(value)}\n")
    for head in sorted(added.keys() & heads.keys(), key=heads.__getitem__, reverse=True):
        lines[heads[head] + 1 : heads[head] + 1] = added[head]
    if added.keys() - heads.keys():
        lines += ["\n" if lines else "", comments, f"[{SECTION}]\n", *added[(SECTION,)]]
    return "".join(lines)


def _path_of(line: str, table: KeyPath) -> KeyPath | None:
    """Return the path of the key in a line, or of the table that it opens; None if it has neither."""
    try:
        value: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    path: KeyPath = ()
    while isinstance(value, Mapping) and len(value) == 1:
        (key,) = value
        path, value = (*path, key), value[key]
    if line.lstrip().startswith("["):
        return path or None
    return (*table, *path) if path else None


def _flat(values: Values, above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*above, key))
        else:
            yield (*above, key), value
