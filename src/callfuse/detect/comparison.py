"""Compare a call, while its arguments arrive, with known calls that it may be equal to.

Calls are equal if their canonical arguments are (`model/signature.py`), so key order, white space and the spelling of
strings and numbers do not matter. The members of the outermost object are compared: a key when it is complete, a
string as it arrives, a number at its end, a list item by item, an object at its end. One difference is enough,
whatever follows: arguments that give one key two different values equal nothing but their own text.

Unexpected input (a control character between two values, an unknown escape, an end where a value should begin) is
never a difference: the call "may be equal" until its end. So arguments that are not JSON differ from JSON only if the
difference comes before their first error.

Each character is read once, and compared with each call that has been equal so far.
"""

import re
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final

from callfuse.detect.known_calls import Beginning, KnownCalls, Node, ObjectDigest, Scalar, goes_on, node_of
from callfuse.wire.jsontext import NotJSON, loads_exact

_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]++')
"""Characters of a string that stand for themselves."""
_UNITS: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))*+')
_ESCAPE_TO_COME: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SCALAR: Final = re.compile(r"[-+.0-9A-Za-z]++")
_BRACKET: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')


class Comparison:
    """Compares the arguments of one call, as they arrive, with those of known calls.

    `differs`: the call equals none of them, whatever still arrives. It depends only on the characters so far, not on
    how they were cut; once true, it stays true.
    """

    __slots__ = ("_at", "_object", "_texts", "differs")

    def __init__(self, known: KnownCalls) -> None:
        self._object = _ObjectReader(known)
        self._texts = known.texts
        self.differs = not (known.texts or known.values)
        self._at = 0

    def feed(self, piece: str) -> None:
        """Take the next characters of the arguments."""
        if self._object.others:
            self._object.feed(piece)
        if self._texts:
            squeezed = "".join(piece.split())
            self._texts = [text for text in self._texts if goes_on(text, squeezed, self._at)]
            self._at += len(squeezed)
        self.differs = not (self._texts or self._object.others)


class _Other:
    """A known call that has been equal so far: its arguments, and the current place in them.

    `members`: how many arguments count. `node`: the current value. `lists`: the lists around it. `at`: the length of
    the current string so far.
    """

    __slots__ = ("at", "lists", "members", "node", "value")

    def __init__(self, value: dict[str, Node], ignore: Collection[str]) -> None:
        self.value = value
        self.members = len(value.keys() - set(ignore))
        self.node: Node = ""
        self.lists: list[list[Node]] = []
        self.at = 0

    def enters(self, key: str) -> bool:
        """Go to the member with this key; False if there is none."""
        self.node = self.value.get(key, "")
        return key in self.value

    def opens_list(self) -> bool:
        """Go into a list; False if the value is not a list."""
        if not isinstance(self.node, list):
            return False
        self.lists.append(self.node)
        return True

    def has_item(self, index: int) -> bool:
        """Go to the list's item at this index; False if there is none."""
        items = self.lists[-1]
        if index >= len(items):
            return False
        self.node = items[index]
        return True

    def closes_list(self, size: int) -> bool:
        """Leave a list of this size; False if it is longer."""
        return len(self.lists.pop()) == size

    def opens_text(self) -> bool:
        """Begin a string; False if the value is not a string."""
        self.at = 0
        return isinstance(self.node, str)

    def goes_on(self, text: str) -> bool:
        """Whether the string continues with this text."""
        at, node = self.at, self.node
        self.at += len(text)
        return node.startswith(text, at) if type(node) is str else isinstance(node, str) and goes_on(node, text, at)

    def closes_text(self) -> bool:
        """Whether the string ends here."""
        return self.at == len(self.node) or (isinstance(self.node, Beginning) and self.at > len(self.node))


class _State(Enum):
    """What the reader may find next."""

    BEGIN = auto()
    FIRST_KEY = auto()
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    VALUE = auto()
    FIRST_ITEM = auto()
    IN_TEXT = auto()
    IN_SCALAR = auto()
    BEHIND_SCALAR = auto()
    IN_OBJECT = auto()
    COMMA = auto()
    NOTHING = auto()
    """The object is closed, or is not JSON: nothing more can differ."""


class _ObjectReader:
    """Reads a JSON object piece by piece, and drops the `others` that differ from it."""

    __slots__ = ("_carry", "_ignore", "_ignored", "_nested", "_parts", "_seen", "_sizes", "_state", "others")

    def __init__(self, known: KnownCalls) -> None:
        self.others = [_Other(value, known.ignore) for value in known.values]
        self._ignore = frozenset(known.ignore)
        self._ignored = False
        self._state = _State.BEGIN
        self._carry = ""
        self._parts: list[str] = []
        self._sizes: list[int] = []  # of the lists that are open: items that have begun
        self._nested = _Nested()
        self._seen: set[str] = set()

    def feed(self, piece: str) -> None:
        """Take the next characters."""
        if self._state is _State.IN_TEXT and not self._carry and _PLAIN.fullmatch(piece):  # as in most pieces
            if not self._ignored:
                self.others = [other for other in self.others if other.goes_on(piece)]
            return
        text, at = self._carry + piece, 0
        self._carry = ""
        while at < len(text) and self.others and self._state is not _State.NOTHING:
            at = _STEPS[self._state](self, text, at)

    def _keep(self, is_equal: Callable[[_Other], bool]) -> None:
        """Drop the others that are not equal here; an ignored argument drops none."""
        if not self._ignored:
            self.others = [other for other in self.others if is_equal(other)]

    def _begin(self, text: str, at: int) -> int:
        begin = text[at:].lstrip()
        if begin:
            self._state = _State.FIRST_KEY
            if begin[0] != "{":
                self.others = []
        return len(text) - len(begin) + 1

    def _key(self, text: str, at: int) -> int:
        """Read the beginning of a key, or the end of an empty object."""
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == '"':
            self._state = _State.IN_KEY
        elif mark == "}" and self._state is _State.FIRST_KEY:
            self._close_object()
        elif mark:
            self._state = _State.NOTHING
        return at + 1

    def _in_key(self, text: str, at: int) -> int:
        part, at, is_over = self._units(text, at)
        self._parts.append(part)
        if is_over:
            key = "".join(self._parts)
            self._parts = []
            self._state = _State.COLON
            self._ignored = key in self._ignore
            if not self._ignored:
                self._seen.add(key)
            self._keep(lambda other: other.enters(key))
        return at

    def _colon(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            self._state = _State.VALUE if text[at] == ":" else _State.NOTHING
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        """Read the beginning of a list's first item, or the end of an empty list."""
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "]":
            self._state = _State.COMMA
        elif mark in ('"', "[", "{") or _SCALAR.match(mark):
            self._open_item()
        elif mark:
            self._state = _State.NOTHING
        return at

    def _open_item(self) -> None:
        index = self._sizes[-1]
        self._sizes[-1] += 1
        self._state = _State.VALUE
        self._keep(lambda other: other.has_item(index))

    def _value(self, text: str, at: int) -> int:
        """Read the first character of a value."""
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == '"':
            self._state = _State.IN_TEXT
            self._keep(_Other.opens_text)
        elif mark == "[" and not self._ignored:
            self._state = _State.FIRST_ITEM
            self._sizes.append(0)
            self._keep(_Other.opens_list)
        elif mark in ("{", "["):
            self._state = _State.IN_OBJECT
            self._keep(lambda other: isinstance(other.node, ObjectDigest))
            return at  # with its bracket
        elif _SCALAR.match(mark):
            self._state = _State.IN_SCALAR
            self._keep(lambda other: isinstance(other.node, Scalar))
            return at
        elif mark:
            self._state = _State.NOTHING
        return at + 1

    def _in_text(self, text: str, at: int) -> int:
        part, at, is_over = self._units(text, at)
        if part:
            self._keep(lambda other: other.goes_on(part))
        if is_over:
            self._state = _State.COMMA
            self._keep(_Other.closes_text)
        return at

    def _in_scalar(self, text: str, at: int) -> int:
        """Read a number or a word."""
        end = _end(_SCALAR, text, at)
        self._parts.append(text[at:end])
        if end < len(text):
            self._state = _State.BEHIND_SCALAR
        return end

    def _behind_scalar(self, text: str, at: int) -> int:
        """Read what follows a number or a word: a comma or an end proves that white space has not divided it."""
        at = _skip(text, at)
        if at < len(text):
            self._state = _State.COMMA if text[at] in ",}]" else _State.NOTHING
            self._compare_parts()
        return at

    def _in_object(self, text: str, at: int) -> int:
        end = self._nested.end(text, at)
        self._parts.append(text[at:end])
        if self._nested.is_over:
            self._state = _State.COMMA
            self._compare_parts()
        return end

    def _comma(self, text: str, at: int) -> int:
        """Read what follows a value: a comma, or the end of a list or of the object."""
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "," and self._sizes:
            self._open_item()
        elif mark == ",":
            self._state = _State.KEY
        elif mark == "]" and self._sizes:
            size = self._sizes.pop()
            self._keep(lambda other: other.closes_list(size))
        elif mark == "}" and not self._sizes:
            self._close_object()
        elif mark:
            self._state = _State.NOTHING
        return at + 1

    def _close_object(self) -> None:
        self._state = _State.NOTHING
        self.others = [other for other in self.others if other.members == len(self._seen)]

    def _compare_parts(self) -> None:
        """Compare a completed number, word or object with the others."""
        text = "".join(self._parts)
        self._parts = []
        if self._ignored or self._state is _State.NOTHING:
            return
        try:
            value = node_of(loads_exact(text))
        except NotJSON:
            self._state = _State.NOTHING
        else:
            self._keep(lambda other: other.node == value)

    def _units(self, text: str, at: int) -> tuple[str, int, bool]:
        """Return the next decoded part of a string, where reading continues, and whether the string has ended.

        An incomplete escape is kept for the next piece, and so is a surrogate that may be half of a pair.
        """
        end = _end(_UNITS, text, at)
        raw, is_over = text[at:end], text[end : end + 1] == '"'
        part = str(loads_exact(f'"{raw}"')) if "\\" in raw else raw
        if is_over:
            return part, end + 1, True
        rest = text[end:]
        if rest and not _ESCAPE_TO_COME.fullmatch(rest):
            self._state = _State.NOTHING
        elif "\ud800" <= part[-1:] <= "\udbff" and raw[-1] != part[-1]:
            part, rest = part[:-1], raw[-6:] + rest
        self._carry = rest
        return part, len(text), False


class _Nested:
    """Finds the end of an object, or of a list, that arrives in pieces.

    `is_over`: the object or list ended in the last piece.
    """

    __slots__ = ("_depth", "_in_string", "_is_escaped", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def end(self, text: str, at: int) -> int:
        """Return where the value that continues at `at` ends in this text; else the text's end."""
        self.is_over = False
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._in_string else _BRACKET).search(text, at)
            if found is None:
                return len(text)
            at, mark = found.end(), found.group()
            if mark == "\\":
                self._is_escaped = True
            elif mark == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark in "{[" else -1
                if not self._depth:
                    self.is_over = True
                    break
        return at


def _skip(text: str, at: int) -> int:
    """Return the index of the next character that is not white space."""
    return _end(_SPACE, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where the pattern's match at `at` ends; `at` if there is no match."""
    found = pattern.match(text, at)
    return found.end() if found else at


_STEPS: Final[dict[_State, Callable[[_ObjectReader, str, int], int]]] = {
    _State.BEGIN: _ObjectReader._begin,
    _State.FIRST_KEY: _ObjectReader._key,
    _State.KEY: _ObjectReader._key,
    _State.IN_KEY: _ObjectReader._in_key,
    _State.COLON: _ObjectReader._colon,
    _State.VALUE: _ObjectReader._value,
    _State.FIRST_ITEM: _ObjectReader._first_item,
    _State.IN_TEXT: _ObjectReader._in_text,
    _State.IN_SCALAR: _ObjectReader._in_scalar,
    _State.BEHIND_SCALAR: _ObjectReader._behind_scalar,
    _State.IN_OBJECT: _ObjectReader._in_object,
    _State.COMMA: _ObjectReader._comma,
}
