"""Classify errors: whether they are transient, and whether two are the same error for different arguments.

Messages often repeat the arguments: a file name, a quoted value, a number. `error_digest` leaves these out, so that
the same complaint about other arguments has the same digest.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from callfuse.harness import is_persons_no
from callfuse.model.outcomes.escapes import strip_escapes
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.outcomes.reading import MAX_DEPTH, edges, exit_code, parse_container, strip_frame

_MENDED_BY_WAITING: Final = (
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
    "connection refused",
    "econnrefused",
    "etimedout",
    "deadline exceeded",
    "deadline_exceeded",
    "could not get lock",
    "database is locked",
    "database table is locked",
    "held by process",
    "held by another process",
    "is not a fast forward",
)
"""Phrases of servers that are at their limit or down, and of locks that somebody else holds for the moment. Refusals
are not transient."""
_TIMED_OUT = re.compile(
    r"timed[ -]?out\b|time-?out(?:error|exception|expired)\b|time-?out (?:after|exceeded|expired|reached|wait|while)"
    r"|(?:\A|error\W{1,6})time-?out\W{0,8}\Z"  # the only words
    r"|(?:connect|connection|execution|gateway|network|operation|read|request|response|socket)[ _-]?time-?out\b"
)
_STATUS = re.compile(
    r"(?:code|error|http|status)\w*\W{1,8}(?:408|429|50[2-4]|529)\b|(?:\A|: )(?:408|429|50[2-4]|529) [a-z]"
)
_CONFLICT = re.compile(r"(?:code|error|http|status)\w*\W{1,8}409\b|(?:\A|: )409 [a-z]")
_STAYS_IN_CONFLICT: Final = ("already", "duplicate", "exists", "taken", "unique")
"""With one of these words, a conflict is with something that exists: waiting does not help."""
_OWN_TIME_OUT = re.compile(
    r"\b(?:cell|code|command|execution|process|program|script)\b[^\n]{0,200}? timed[ -]?out\b|\btimeoutexpired\b"
    r"|\btimed out and (?:has been|was) killed\b"
)
"""The called program itself takes too long."""
_REFUSED: Final = (
    re.compile(r"\b(?:permission|access) denied \([a-z,\-]{0,80}(?:publickey|password|interactive)"),
    re.compile(
        r"(?:code|error|http|status)\w{0,12}\W{1,8}401\b|(?:\A|: )401 [a-z]|\bunauthori[sz]ed\b|\bbad credentials\b"
        r"|\b(?:expired|incorrect|invalid|wrong) (?:api[ _-]?key|credentials|password|(?:access |auth )?token)\b"
        r"|\bauthentication (?:failed|required)\b"
    ),
    re.compile(r"(?:code|error|http|status)\w{0,12}\W{1,8}403\b|(?:\A|: )403 [a-z]|\bforbidden\b"),
)
"""The caller is refused, for whatever call: the key is not accepted, unauthorized (401), forbidden (403)."""
_REFUSING: Final = (
    "denied",
    "401",
    "403",
    "unauthori",
    "credentials",
    "forbidden",
    "key",
    "password",
    "token",
    "authen",
)
"""A refusal contains one of these; checked first, because the patterns cost more."""
_MAX_MESSAGES: Final = 8
"""How many messages of a result are searched for a person's refusal."""
_MAX_MESSAGE: Final = 2000
"""How many characters of a message are digested."""
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
    """Whether an error may be gone after waiting: a rate limit, a server that is overloaded or down, a time-out, a
    lock, a conflict with somebody else's change."""
    seen = edges(text).lower()
    if any(words in seen for words in _MENDED_BY_WAITING) or _TIMED_OUT.search(seen) or _STATUS.search(seen):
        return True
    if "409" not in seen or _CONFLICT.search(seen) is None:
        return False
    return True not in [words in seen for words in _STAYS_IN_CONFLICT]


def is_own_time_out(text: str) -> bool:
    """Whether a command or a program ran for too long: another call would take as long."""
    return _OWN_TIME_OUT.search(edges(text).lower()) is not None


def was_refused_by_person(texts: Iterable[str]) -> bool:
    """Whether a person refused the call; such an error says nothing about the tool or other calls."""
    said = (message for text in texts for message in messages(text))
    return any(map(is_persons_no, islice(said, _MAX_MESSAGES)))


def _refusal(text: str) -> int | None:
    """Return the index of the pattern in `_REFUSED` that matches; None for other errors."""
    seen = edges(text).lower()
    if True not in [words in seen for words in _REFUSING]:
        return None
    return next((at for at, pattern in enumerate(_REFUSED) if pattern.search(seen)), None)


def error_digest(texts: Iterable[str]) -> bytes:
    """Digest an error message (8 bytes) without the parts that depend on arguments; empty if no words are left.

    A refusal of the caller (401, 403, `Permission denied (publickey)`) is the same whatever else the message says.
    """
    texts = list(texts)
    if (refusal := next((at for text in texts if (at := _refusal(text)) is not None), None)) is not None:
        return blake2b(b"refused %d" % refusal, digest_size=8).digest()
    message = "\n".join(line for text in texts for line in messages(text)).strip()
    if exit_code(edges(message).lower()) is not None:
        message = strip_frame(message)
    if _TRACE in message:
        message = message.rpartition("\n")[2]  # the last line of a traceback is the error itself
    words = _QUOTED.sub(b" ", normalise(message[:_MAX_MESSAGE])).lower().split()
    kept = [word for word in words if not _is_name(word)]
    return blake2b(b" ".join(kept), digest_size=8).digest() if any(map(_LETTER.search, kept)) else b""


def _is_name(word: bytes) -> bool:
    """Whether a word looks like a path, a file name or an attribute."""
    return b"/" in word or b"\\" in word or b"." in word.strip(_PUNCTUATION)


def messages(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the message texts of an error, from JSON objects and lists too."""
    if isinstance(value, str):
        inner = parse_container(value.strip()) if depth < MAX_DEPTH else None
        if inner is None:
            yield strip_escapes(value)
        else:
            yield from messages(inner, depth + 1)
    elif isinstance(value, dict) and depth < MAX_DEPTH:
        found = [value[key] for key in _MESSAGE_KEYS if value.get(key)]
        for item in found or value.values():
            yield from messages(item, depth + 1)
    elif isinstance(value, list) and depth < MAX_DEPTH:
        for item in value:
            yield from messages(item, depth + 1)
