"""The identity of a call: tool name and canonical arguments.

Equality is that of RFC 8785 (JSON Canonicalization Scheme): key order, white space, `1` and `1.0` and `1e0`, `0` and
`-0` do not matter, NFC and NFD differ. One departure: integers keep all their digits, where the RFC's doubles would
merge two 19-digit ids. Arguments that are no JSON are their own identity; `""` is `{}` (vendors send it for a call
without parameters).
"""

import json
import math
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson

from callfuse.jsontext.load import NotJSON, dumps, loads_exact

Signature = bytes
"""SHA-256 of tool name, newline, canonical arguments."""

_DELICATE = re.compile(r"\d[.eE]|-0|\d{16}|\\u[dD]")
"""Arguments in which a number may need more care than orjson's own writer takes, or a string may hold a surrogate."""


class _Imprecise(ValueError):
    """The fast parser has rounded an integer."""


def signature_of(name: str, arguments: Any, exact: Callable[[], Any] | None = None) -> Signature:
    """The digest of a call. `arguments` is raw JSON text or a parsed value; `exact` reads that value with all digits."""
    if isinstance(arguments, str):
        text = canonical_text(arguments)
    else:
        text = _value_text(arguments, exact)
    return sha256(name.encode("utf-8", "surrogatepass") + b"\n" + text).digest()


def _value_text(arguments: Any, exact: Callable[[], Any] | None) -> bytes:
    """Canonical form of a parsed value, read again where the fast parser has rounded it."""
    try:
        return _canonical(arguments, rounded=exact is not None)
    except _Imprecise:
        return _value_text(exact() if exact else arguments, None)
    except (NotJSON, RecursionError):
        return dumps(arguments)


def canonical_text(arguments: str) -> bytes:
    """Raw argument text in canonical form, or as it is where it is no JSON."""
    if not arguments or arguments.isspace():
        return b"{}"
    if not _DELICATE.search(arguments):
        try:
            return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return _exact_text(arguments)
    return _exact_text(arguments)


def _exact_text(arguments: str) -> bytes:
    """Canonical form by the lenient reader, for what orjson refuses or would round."""
    try:
        return _canonical(loads_exact(arguments), rounded=False)
    except (NotJSON, RecursionError):
        return arguments.strip().encode("utf-8", "surrogatepass")


def _canonical(value: Any, *, rounded: bool) -> bytes:
    """A parsed value in canonical form. `rounded`: the value is from the fast parser, which may have rounded."""
    plain = _plain_numbers(value, rounded)
    try:
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")


def _plain_numbers(value: Any, rounded: bool) -> Any:
    """The same value with whole floats as integers."""
    if isinstance(value, dict):
        return {key: _plain_numbers(item, rounded) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(item, rounded) for item in value]
    if isinstance(value, float):
        if rounded and abs(value) >= 2.0**63:
            raise _Imprecise
        if math.isinf(value) or math.isnan(value):
            raise NotJSON("a number beyond the range of doubles")
        return int(value) if value.is_integer() else value
    return value
