"""Read the configuration of a gateway, YAML or JSON with any number of documents, as parts that know their place.

Keys may be written in snake case or in camel case: `message_timeout` or `messageTimeout`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from callfuse.config.files import parse_yaml
from callfuse.config.model import KeyPath, dotted_name, item_name
from callfuse.observe.printable import plain
from callfuse.wire.jsontext import NotJSON, loads

MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a file. A full dump of a large mesh is shorter."""


class UnreadableFileError(Exception):
    """Raised for an unreadable file. The message says why, with a line for each fault."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A value of the file, with the part around it. `lines`: the lines of the file's keys, empty for JSON."""

    value: Any
    lines: Mapping[KeyPath, int] = field(repr=False)
    path: KeyPath = ()
    around: "FilePart | None" = field(default=None, repr=False)

    def at(self, *keys: str) -> "FilePart":
        """Return the part below these keys. Its value is None if there is none."""
        part = self
        for key in keys:
            values = part.value if isinstance(part.value, Mapping) else {}
            name = key if key in values else camel(key)
            part = FilePart(values.get(name), self.lines, (*part.path, name), part)
        return part

    def has(self, key: str) -> bool:
        """Whether this is a mapping with this key."""
        return self.at(key).value is not None

    @property
    def parts(self) -> Iterator["FilePart"]:
        """The values of a mapping, or the items of a list, in their order."""
        match self.value:
            case Mapping():
                pairs = [(str(key), value) for key, value in self.value.items()]
            case list():
                pairs = [(item_name(at), value) for at, value in enumerate(self.value)]
            case _:
                pairs = []
        return (FilePart(value, self.lines, (*self.path, name), self) for name, value in pairs)

    @property
    def mappings(self) -> Iterator["FilePart"]:
        """All mappings in this part, each once, even with aliases; the outer ones first."""
        seen, waiting = set[int](), [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part.value, Mapping | list) and id(part.value) not in seen:
                seen.add(id(part.value))
                waiting.extend(reversed([*part.parts]))
                if isinstance(part.value, Mapping):
                    yield part

    @property
    def outwards(self) -> Iterator["FilePart"]:
        """This part, and then those around it."""
        part: FilePart | None = self
        while part is not None:
            yield part
            part = part.around

    @property
    def place(self) -> str:
        """Its place: its line or that of the nearest key around it, else the path of its keys."""
        lines = (self.lines[part.path] for part in self.outwards if part.path in self.lines)
        return next((f"line {line}" for line in lines), plain(dotted_name(self.path)) or "the file")


def camel(key: str) -> str:
    """Convert a key to camel case: `message_timeout` to `messageTimeout`."""
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)


def read_gateway_file(name: str) -> FilePart:
    """Read a file (`-`: standard input). Raises UnreadableFileError."""
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).expanduser().open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{name} cannot be read: it is not UTF-8 (byte {error.start})") from None
    if len(raw) > MOST_BYTES:
        raise UnreadableFileError(f"{name} is longer than {MOST_BYTES:,} bytes")
    if text.lstrip()[:1] in ("{", "["):  # YAML includes JSON, but its parser takes a hundred times as long
        try:
            return FilePart(loads(text), {})
        except NotJSON:
            pass
    try:
        found = parse_yaml(text, name, several=True)
    except RecursionError:
        raise UnreadableFileError(f"{name}: too many nested brackets") from None
    if found.problems:
        raise UnreadableFileError("\n".join(found.problems))
    return FilePart(found.value, found.lines)
