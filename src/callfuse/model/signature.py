"""Compute the identity of a call: tool name and canonical arguments.

Equality is that of RFC 8785 (JSON Canonicalization Scheme): key order, white space, `1` and `1.0` and `1e0`, `0` and
`-0` do not matter, NFC and NFD differ. One departure: integers keep all their digits, because the RFC's doubles would
merge two 19-digit ids. Arguments that are not JSON are compared as text without white space; `""` is `{}` (vendors send
it for a call without parameters). Arguments with two different values for one key are compared as text, too: the RFC
requires I-JSON, which forbids them; parsers disagree on them; a call must be identified before its last value comes.

The cost is bounded whatever a model sends: a text of more than 4 Mi characters or 10,000 values is not parsed, and a
text of more than 64 Ki characters that is not JSON keeps its white space. Such a text equals only itself.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import orjson

from callfuse.memo import remembered
from callfuse.wire.jsontext import NotJSON, loads_exact
from callfuse.wire.values import is_too_much_inside

Signature = bytes
"""SHA-256 of tool name, newline, canonical arguments."""

_DELICATE = re.compile(r"[-0-9\\](?:(?<=\\)u[dD]|(?<=[:\[,\s].)(?:(?<=-)0|[0-9]{15}|[0-9]{0,16}[.eE]))")
"""Matches in an object or list if orjson may not write a number canonically, or if a string may have a surrogate. It
begins with a set of characters, to which `re` can skip: that makes the search five times as fast."""
_DELICATE_BYTES = re.compile(_DELICATE.pattern.encode())
_NULL: Final = b"null"
_STRING_OR_SPACE = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))|\s++', re.DOTALL)
"""An unclosed string extends to the end of the text, so that its end is not searched again from each of its quotes."""

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]:,]', re.DOTALL)
"""The tokens that separate the members of a JSON object, and strings."""

_FEW_KEYS: Final = 16
"""In an object of at most so many keys, each key is searched in the text by itself."""

_LONGEST_LOOSE: Final = 64 * 1024
"""White space is removed from a text that is not JSON up to so many characters: that blocks the event loop for 15 ms at
most."""


class _Rounded(ValueError):
    """Raised when the fast parser has rounded an integer."""


def signature_of(
    name: str, arguments: Any, exact: Callable[[], Any] | None = None, ignore: Collection[str] = ()
) -> Signature:
    """Return the digest of a call. `arguments` is raw JSON text or a parsed value; `exact` reads the value with all
    digits; arguments with a name in `ignore` do not matter."""
    if ignore:
        arguments, exact = _without(arguments, exact, ignore), None
    if isinstance(arguments, str):
        return text_signature(name, arguments)
    text = _plain_text(arguments)
    if len(name) + len(text) <= _KEPT_LENGTH and (known := _of_plain_kept(name, b"%b" % text)):  # a copy, as in `dumps`
        return known
    return _digest(name, _value_text(arguments, text, exact))


_KEPT_LENGTH: Final = 512


@remembered(entries=4096, longest=_KEPT_LENGTH)
def text_signature(name: str, arguments: str) -> Signature:
    """Return the digest of a call with raw JSON text. Memoized: each request of a session repeats its history, and each
    round of a loop its calls."""
    return _digest(name, canonical_text(arguments))


def _digest(name: str, text: bytes) -> Signature:
    return sha256(name.encode("utf-8", "surrogatepass") + b"\n" + text).digest()


def canonical(arguments: Any, exact: Callable[[], Any] | None = None, ignore: Collection[str] = ()) -> bytes:
    """Return the canonical arguments in a signature; see `signature_of`."""
    if ignore:
        arguments, exact = _without(arguments, exact, ignore), None
    if isinstance(arguments, str):
        return canonical_text(arguments)
    return _value_text(arguments, _plain_text(arguments), exact)


def contradicts_itself(text: str, value: Any, ignore: Collection[str] = ()) -> bool:
    """Whether a JSON text, read as `value`, is an object that gives a key two different values. Keys in `ignore` do not
    count."""
    if not isinstance(value, dict) or text.count(":") == len(value):
        return False
    if (
        len(value) <= _FEW_KEYS
        and "\\u" not in text
        and False not in [key.isidentifier() and text.count(f'"{key}"') == 1 for key in value]
    ):
        return False  # nearly always: each key is in the text once, and has no other spelling
    members: dict[str, list[str]] = {}
    for key, text_of_value in _members(text):
        members.setdefault(key, []).append(text_of_value)
    return any(key not in ignore and len(own) > 1 and _differ(own) for key, own in members.items())


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a JSON object, and the texts of their values, without recursion."""
    depth, key, begin = 0, "", 0  # where the value begins, once its key has come
    for token in _TOKEN.finditer(text):
        mark = text[token.start()]
        if mark in "{[":
            depth += 1
        elif mark in "}]:,":
            if depth == 1 and mark == ":":
                begin = token.end()
            elif depth == 1 and begin:
                yield str(loads_exact(key)), text[begin : token.start()]
                begin = 0
            depth -= mark in "}]"
        elif depth == 1 and not begin:
            key = token.group()


def _differ(texts: Sequence[str]) -> bool:
    """Whether these JSON texts have different values; True if one cannot be read."""
    try:
        return len({canonical_value(loads_exact(text)) for text in texts}) > 1
    except NotJSON:
        return True


def _without(arguments: Any, exact: Callable[[], Any] | None, names: Collection[str]) -> Any:
    """Return the arguments without those in `names`, with all digits; unchanged if they are not an object."""
    value = exact() if exact else arguments
    if isinstance(value, str):
        text = value
        if is_too_much_inside(text):
            return arguments
        try:
            value = loads_exact(text)
        except NotJSON:
            return arguments
        if contradicts_itself(text, value, names):
            return arguments
    return {key: one for key, one in value.items() if key not in names} if isinstance(value, dict) else arguments


def canonical_text(arguments: str) -> bytes:
    """Return raw argument text in canonical form, or without its white space if it is not JSON; unchanged if it is too
    large to parse."""
    if is_too_much_inside(arguments):
        return _as_it_is(arguments)
    if not arguments or arguments.isspace():
        return b"{}"
    if arguments[0] in "{[" and not _DELICATE.search(arguments):
        try:
            value = orjson.loads(arguments)
            if not contradicts_itself(arguments, value):
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass
    return _exact_text(arguments)


def canonical_value(value: Any) -> bytes:
    """Return a value of any depth in canonical form."""
    return _canonical(value, rounded=False)


def _exact_text(arguments: str) -> bytes:
    """Return the canonical form by the lenient reader, for texts that orjson refuses or would round."""
    try:
        value = loads_exact(arguments)
        if not contradicts_itself(arguments, value):
            return _canonical(value, rounded=False)
    except NotJSON:
        pass
    short = len(arguments) <= _LONGEST_LOOSE
    return _as_it_is(_STRING_OR_SPACE.sub(r"\1", arguments.strip()) if short else arguments)


def _as_it_is(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _plain_text(arguments: Any) -> bytes:
    """Return an object or a list as orjson writes it; `null` for everything else."""
    if not isinstance(arguments, dict | list):
        return _NULL
    try:
        return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return _NULL


def _is_canonical(text: bytes) -> bool:
    """Whether orjson's output is certainly the canonical form; False if it has `null`, which orjson writes for NaN."""
    return _NULL not in text and not _DELICATE_BYTES.search(text)


@remembered(entries=4096, longest=_KEPT_LENGTH)
def _of_plain_kept(name: str, text: bytes) -> Signature | None:
    """Return the digest of orjson's output; None if that may not be the canonical form."""
    return _digest(name, text) if _is_canonical(text) else None


def _value_text(arguments: Any, text: bytes, exact: Callable[[], Any] | None) -> bytes:
    """Return the canonical form of a parsed value; `text` is orjson's output for it. If the fast parser has rounded the
    value, `exact` reads it again."""
    if _is_canonical(text):
        return text
    try:
        return _canonical(arguments, rounded=exact is not None)
    except _Rounded:
        return _canonical(exact() if exact else arguments, rounded=False)


def is_rounded(arguments: Any) -> bool:
    """Whether the fast parser may have rounded an integer of these arguments."""
    if _is_canonical(_plain_text(arguments)):
        return False
    try:
        _canonical(arguments, rounded=True)
    except _Rounded:
        return True
    return False


def _canonical(value: Any, *, rounded: bool) -> bytes:
    """Return a value of any depth in canonical form. `rounded`: read by the fast parser, which rounds wide integers."""
    out = bytearray()  # not a list: each bytes object by orjson keeps a buffer of 4 KB
    left: list[Any] = [value]  # what is still to be written, last first; bytes are written as they are
    while left:
        item = left.pop()
        if isinstance(item, bytes):
            out += item
        elif isinstance(item, dict):
            left.append(b"}")
            for at, key in reversed(list(enumerate(sorted(item)))):
                left += (item[key], (b",%b:" if at else b"%b:") % _string(key))
            left.append(b"{")
        elif isinstance(item, list):
            left.append(b"]")
            for at, element in reversed(list(enumerate(item))):
                left += (element, b"," if at else b"")
            left.append(b"[")
        elif isinstance(item, str):
            out += _string(item)
        elif isinstance(item, float):
            out += _number(item, rounded)
        else:
            out += json.dumps(item).encode()
    return bytes(out)


def _string(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _number(value: float, rounded: bool) -> bytes:
    """Write a double; whole numbers as integers."""
    if math.isinf(value) or math.isnan(value):
        return repr(value).encode()
    if rounded and abs(value) >= 2.0**63:
        raise _Rounded
    return str(int(value)).encode() if value.is_integer() else orjson.dumps(value)
