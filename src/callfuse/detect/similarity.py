"""How alike the arguments of two calls are, and what came of them, from 0 to 1.

Objects are compared field by field (the mean over all keys of both), lists by position, all else as text: by
Levenshtein distance (rapidfuzz; 1 - distance / longer length) or by the Jaccard index of their words. Long texts are
compared by their ends, deep or wide values as text, so that the cost is bounded whatever a model sends.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final

from rapidfuzz.distance import Levenshtein

from callfuse.detect.settings import Settings, Similarity
from callfuse.model import ToolCall
from callfuse.model.outcomes import SHORT_TEXT, Outcome
from callfuse.wire.jsontext import NotJSON, dumps, loads

END: Final = 512
"""Characters of a long text that are compared at each of its ends."""
LONGEST: Final = 4096
"""Characters of arguments up to which their fields are looked at."""
FIELDS: Final = 64
DEPTH: Final = 8

COUNTING: Final = frozenset((
    "after", "before", "cursor", "from", "index", "line", "linestart", "nextpagetoken", "nexttoken", "offset", "page",
    "pageindex", "pageno", "pagenumber", "pagetoken", "skip", "start", "startat", "startcursor", "startindex",
    "startline", "viewrange",
))  # fmt: skip
"""Arguments that count through a result in pieces, in lower case and without `_` and `-`."""

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_JOINTS: Final = {ord("_"): None, ord("-"): None}
_MISSING: Final = object()
_SCALAR: Final = (str, int, float)


def alike(one: ToolCall, other: ToolCall, settings: Settings) -> float:
    """How alike two calls of one tool are; calls without arguments to look at are only like themselves."""
    if one.signature == other.signature:
        return 1.0
    if not (one.has_arguments and other.has_arguments):
        return 0.0
    mine, theirs = one.text, other.text
    is_kept = len(mine) + len(theirs) <= _KEPT_LENGTH
    return (_kept if is_kept else _alike)(mine, theirs, one.ignore, other.ignore, settings.similarity)


def _alike(mine: str, theirs: str, ignore: Collection[str], their_ignore: Collection[str], how: Similarity) -> float:
    if max(len(mine), len(theirs)) > LONGEST:
        return _texts(mine, theirs, how)
    try:
        return _values(_value(mine, ignore), _value(theirs, their_ignore), how, DEPTH)
    except (NotJSON, RecursionError):
        return _texts(mine, theirs, how)


_kept = lru_cache(maxsize=1024)(_alike)
"""A history comes again with each request of its session."""
_KEPT_LENGTH: Final = 1024


def pages_on(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls want different pieces of a result: an argument that counts differs (`page`, `offset`)."""
    if not (one.has_arguments and other.has_arguments) or max(len(one.text), len(other.text)) > LONGEST:
        return False
    try:
        return _differs_in_count(loads(one.text), loads(other.text), 2)
    except (NotJSON, RecursionError):
        return False


def _differs_in_count(mine: Any, theirs: Any, depth: int) -> bool:
    if not (isinstance(mine, dict) and isinstance(theirs, dict)):
        return False
    for key in mine | theirs:
        value, other = mine.get(key, _MISSING), theirs.get(key, _MISSING)
        if value is not other and value != other and key.lower().translate(_JOINTS) in COUNTING:
            return True
        if depth and _differs_in_count(value, other, depth - 1):
            return True
    return False


def outcomes_alike(one: Outcome, other: Outcome, settings: Settings) -> float:
    """How alike two outcomes are: short ones may be nearly equal, once a threshold is set.

    Of longer ones only the beginning is kept, which says nothing of the rest.
    """
    if one.digest == other.digest:
        return 1.0
    if not settings.similarity_threshold or one.kind is not other.kind:
        return 0.0
    if not (0 < len(one.text) < SHORT_TEXT and 0 < len(other.text) < SHORT_TEXT):
        return 0.0
    return _texts(one.text, other.text, settings.similarity)


def _value(text: str, ignore: Collection[str]) -> Any:
    """Arguments without the fields that do not tell calls apart."""
    value = loads(text)
    if ignore and isinstance(value, dict):
        return {key: item for key, item in value.items() if key not in ignore}
    return value


def _values(mine: Any, theirs: Any, how: Similarity, depth: int) -> float:
    if isinstance(mine, _SCALAR) and type(mine) is type(theirs) and mine == theirs:
        return 1.0
    if mine is _MISSING or theirs is _MISSING:
        return 0.0
    pairs = _pairs(mine, theirs) if depth else []
    if not 0 < len(pairs) <= FIELDS:
        return _texts(_text(mine), _text(theirs), how)
    return sum([_values(a, b, how, depth - 1) for a, b in pairs]) / len(pairs)


def _pairs(mine: Any, theirs: Any) -> list[tuple[Any, Any]]:
    """The values of two objects by their keys, or those of two lists by their places; none of other values."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [(mine.get(key, _MISSING), theirs.get(key, _MISSING)) for key in mine | theirs]
    if isinstance(mine, list) and isinstance(theirs, list):
        return list(zip_longest(mine, theirs, fillvalue=_MISSING))
    return []


def _texts(mine: str, theirs: str, how: Similarity) -> float:
    mine, theirs = _plain(mine, how), _plain(theirs, how)
    if mine == theirs:
        return 1.0
    if how.algorithm == "jaccard":
        words, others = set(_WORD.findall(mine)), set(_WORD.findall(theirs))
        return len(words & others) / (len(words | others) or 1)
    return Levenshtein.normalized_similarity(mine, theirs)


def _plain(text: str, how: Similarity) -> str:
    if len(text) > 2 * END:
        text = text[:END] + text[-END:]
    if how.normalize_whitespace:
        text = " ".join(text.split())
    return text.casefold() if how.ignore_case else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
