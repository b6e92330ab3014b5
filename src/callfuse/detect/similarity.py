"""Measure how similar the arguments of two calls are, and their outcomes, from 0 to 1.

Objects are compared field by field (the mean over all keys of both), lists by position, all else as text: by
Levenshtein distance (rapidfuzz; 1 - distance / longer length) or by the Jaccard index of their words. If order does not
matter, lists are aligned by their equal elements, and texts of several words are also compared with sorted words (1 -
insertions and deletions / both lengths): one word more or less, at any place, does not change a question (`population
of France 2023`, `France population 2023`: 94 %). `levenshtein_json` compares the whole arguments as one JSON text, with
keys and punctuation: `data.csv` and `./data.csv` are 91 % similar by it, and 80 % field by field, so thresholds are not
comparable. Long texts are compared by their ends, and deep or wide values as text, so that the cost is bounded whatever
a model sends.
"""

import json
import re
from collections import Counter
from collections.abc import Collection
from itertools import zip_longest
from operator import itemgetter
from typing import Any, Final

from rapidfuzz.distance import Indel, Levenshtein

from callfuse.detect.settings import Settings, Similarity
from callfuse.memo import remembered
from callfuse.model import ToolCall
from callfuse.model.outcomes import SHORT_TEXT, Outcome
from callfuse.model.signature import canonical_value
from callfuse.wire.jsontext import NotJSON, dumps, loads

END: Final = 512
"""How many characters at each end of a long text are compared."""
LONGEST: Final = 4096
"""Arguments of more characters are not compared field by field."""
FIELDS: Final = 64
DEPTH: Final = 8
FEW: Final = 3
"""In a text of at least so many words their order may be ignored; with two words it matters (`cp a`, `a cp`)."""

COUNTING: Final = frozenset((
    "after", "before", "cursor", "from", "index", "line", "linestart", "nextpagetoken", "nexttoken", "offset", "page",
    "pageindex", "pageno", "pagenumber", "pagetoken", "skip", "start", "startat", "startcursor", "startindex",
    "startline", "viewrange",
))  # fmt: skip
"""Arguments that page through a result, in lower case and without `_` and `-`."""

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_JOINTS: Final = {ord("_"): None, ord("-"): None}
_MISSING: Final = object()
_SCALAR: Final = (str, int, float)


def alike(one: ToolCall, other: ToolCall, settings: Settings) -> float:
    """Return how similar two calls of one tool are; calls with unknown arguments are only similar to themselves."""
    if one.signature == other.signature:
        return 1.0
    if not (one.has_arguments and other.has_arguments):
        return 0.0
    return _alike(one.text, other.text, one.ignore, other.ignore, settings.similarity)


@remembered(entries=1024, longest=1024)
def _alike(mine: str, theirs: str, ignore: Collection[str], their_ignore: Collection[str], how: Similarity) -> float:
    """A history comes again with each request of its session."""
    if max(len(mine), len(theirs)) > LONGEST:
        return _characters(mine, theirs, how)
    try:
        if how.algorithm == "levenshtein_json":
            return _characters(_json(_value(mine, ignore)), _json(_value(theirs, their_ignore)), how)
        return _values(_value(mine, ignore), _value(theirs, their_ignore), how, DEPTH)
    except (NotJSON, RecursionError):
        return _characters(mine, theirs, how)


def _json(value: Any) -> str:
    """Return arguments as one text, with sorted keys, and spaces as Python's `json` writes them."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def pages_on(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls ask for different pieces of a result: a paging argument differs (`page`, `offset`)."""
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
    """Return how similar two outcomes are; short outcomes may be nearly equal, if a threshold is set.

    Longer outcomes are equal or not: only their beginning is kept.
    """
    if one.digest == other.digest:
        return 1.0
    if not settings.similarity_threshold or one.kind is not other.kind:
        return 0.0
    if not (0 < len(one.text) < SHORT_TEXT and 0 < len(other.text) < SHORT_TEXT):
        return 0.0
    return _characters(one.text, other.text, settings.similarity)


def _value(text: str, ignore: Collection[str]) -> Any:
    """Return arguments without the ignored fields."""
    value = loads(text)
    if ignore and isinstance(value, dict):
        return {key: item for key, item in value.items() if key not in ignore}
    return value


def _values(mine: Any, theirs: Any, how: Similarity, depth: int) -> float:
    if isinstance(mine, _SCALAR) and type(mine) is type(theirs) and mine == theirs:
        return 1.0
    if mine is _MISSING or theirs is _MISSING:
        return 0.0
    pairs = _pairs(mine, theirs, how) if depth else []
    if not 0 < len(pairs) <= FIELDS:
        if isinstance(mine, str) and isinstance(theirs, str):
            return _words(mine, theirs, how)
        return _characters(_text(mine), _text(theirs), how)
    return sum([_values(a, b, how, depth - 1) for a, b in pairs]) / len(pairs)


def _pairs(mine: Any, theirs: Any, how: Similarity) -> list[tuple[Any, Any]]:
    """Return the values of two objects in pairs by key, or those of two lists by place (if order does not matter, equal
    values first); no pairs for other values."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [(mine.get(key, _MISSING), theirs.get(key, _MISSING)) for key in mine | theirs]
    if isinstance(mine, list) and isinstance(theirs, list):
        if how.ignore_array_order and max(len(mine), len(theirs)) <= FIELDS:
            mine, theirs = _aligned(mine, theirs)
        return list(zip_longest(mine, theirs, fillvalue=_MISSING))
    return []


def _aligned(mine: list[Any], theirs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return two lists in another order: the elements that both have first, then the rest of each, sorted by text."""
    own, other = [sorted([(canonical_value(value), value) for value in one], key=_first) for one in (mine, theirs)]
    both = Counter(text for text, _ in own) & Counter(text for text, _ in other)
    return _in_front(own, both), _in_front(other, both)


def _in_front(values: list[tuple[bytes, Any]], common: Counter[bytes]) -> list[Any]:
    left = common.copy()
    front: list[Any] = []
    rest: list[Any] = []
    for text, value in values:
        (front if left[text] > 0 else rest).append(value)
        left[text] -= 1
    return front + rest


_first: Final = itemgetter(0)


def _words(mine: str, theirs: str, how: Similarity) -> float:
    """Return how similar two texts are; the order of their words is ignored if it does not matter."""
    likeness = _characters(mine, theirs, how)
    if likeness == 1 or not (how.ignore_word_order and how.normalize_whitespace and how.algorithm == "levenshtein"):
        return likeness
    words, others = sorted(_plain(mine, how).split()), sorted(_plain(theirs, how).split())
    if min(len(words), len(others)) < FEW:
        return likeness
    return max(likeness, Indel.normalized_similarity(" ".join(words), " ".join(others)))


def _characters(mine: str, theirs: str, how: Similarity) -> float:
    """Return how similar two texts are, with their words in the given order."""
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
