"""Errors: whose they are, and which, whatever the arguments.

An error often repeats what was asked for: a file's name, a value in quotes, a number. Its gist is its message without
those, so that the same complaint about other arguments is the same error.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from callfuse.model.outcomes.normalise import normalised
from callfuse.model.outcomes.reading import DEEPEST, edges, exit_code, opened, unframed

_OUTSIDE: Final = (
    "rate limit",
    "rate_limit",
    "too many requests",
    "quota exceeded",
    "resource exhausted",
    "resource_exhausted",
    "overloaded",
    "service unavailable",
    "temporarily unavailable",
    "bad gateway",
    "gateway timeout",
    "gateway time-out",
    "internal server error",
    "unauthorized",
    "forbidden",
    "haven't granted",
    "requires approval",
    "doesn't want to proceed",
)
"""What servers say that are at their limit or down, and what stands in the place of a permission."""
_DENIED = re.compile(
    r"\A\W*permission denied|permission to \w+\b.{0,80}\bdenied"
    r"|(?:user|operator|human) (?:has )?(?:cancell?ed|declined|denied|disallowed|refused|rejected)\b"
    r"|(?:declined|denied|refused|rejected) by (?:the |a )?(?:user|operator|human|policy|hook|administrator)\b",
)
_STATUS = re.compile(
    r"(?:code|error|http|status)\w*\W{1,8}(?:40[13]|429|5\d\d)\b|(?:\A|: )(?:40[13]|429|50[0-4]|529) [a-z]"
)
_LONGEST: Final = 2000
"""Characters of a message that are looked at."""
_MESSAGE_KEYS: Final = (
    "error", "errors", "message", "detail", "details", "reason", "text", "content", "result", "output", "stderr",
    "error_message", "errorMessage",
)  # fmt: skip
_TRACE: Final = "Traceback (most recent call last)"
_QUOTED = re.compile(
    rb"(?<![0A-Za-z])(['\"`])[^'\"`\n]{0,200}\1(?![0A-Za-z])|\xe2\x80[\x98\x9c][^\n]{0,200}?\xe2\x80[\x99\x9d]"
)
_LETTER = re.compile(rb"[^\W0]|[\x80-\xff]")
_PUNCTUATION: Final = b".,:;!?()[]{}<>\"'`"


def is_transient(text: str) -> bool:
    """Whether an error's cause lies outside: a limit, a failing server, a permission that was denied."""
    seen = edges(text).lower()
    return any(words in seen for words in _OUTSIDE) or bool(_DENIED.search(seen) or _STATUS.search(seen))


def gist(texts: Iterable[str]) -> bytes:
    """A digest of what an error complains of, empty where it does not say."""
    message = "\n".join(line for text in texts for line in _messages(text, 0)).strip()
    if exit_code(edges(message).lower()) is not None:
        message = unframed(message)
    if _TRACE in message:
        message = message.rpartition("\n")[2]  # the trace says where, its last line what
    words = _QUOTED.sub(b" ", normalised(message[:_LONGEST])).lower().split()
    kept = [word for word in words if not _is_name(word)]
    return blake2b(b" ".join(kept), digest_size=8).digest() if any(map(_LETTER.search, kept)) else b""


def _is_name(word: bytes) -> bool:
    """Whether a word names a file, a place or a member of something."""
    return b"/" in word or b"\\" in word or b"." in word.strip(_PUNCTUATION)


def _messages(value: Any, depth: int) -> Iterator[str]:
    """The texts of an error that say something, out of the objects they stand in."""
    if isinstance(value, str):
        inner = opened(value.strip()) if depth < DEEPEST else None
        if inner is None:
            yield value
        else:
            yield from _messages(inner, depth + 1)
    elif isinstance(value, dict) and depth < DEEPEST:
        told = [value[key] for key in _MESSAGE_KEYS if value.get(key)]
        for item in told or value.values():
            yield from _messages(item, depth + 1)
    elif isinstance(value, list) and depth < DEEPEST:
        for item in value:
            yield from _messages(item, depth + 1)
