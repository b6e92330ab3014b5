"""Make the `Outcome` of a tool result, and compare outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from callfuse.harness import is_placeholder, strip_additions, strip_wrapping
from callfuse.memo import remembered
from callfuse.model.outcomes.errors import error_digest, is_own_time_out, is_transient, was_refused_by_person
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.outcomes.parts import Media, Part, parts_of
from callfuse.model.outcomes.reading import ResultStatus, combine, read_text, read_value, reports_error
from callfuse.model.outcomes.unknown import names_unknown_tool
from callfuse.model.signature import signature_of
from callfuse.wire.jsontext import dumps

SHORT_TEXT: Final = 300
"""How many characters of a result are kept for messages."""

BRIEF: Final = 200
"""Durations and addresses count only in a result of at most so many characters; a longer one has other content, too."""
_MAX_PARTS_READ: Final = 8
"""How many parts of a result are read for the status; the digest is of all parts."""


class OutcomeKind(StrEnum):
    """How a call ended."""

    OK = "ok"
    NO_DATA = "no_data"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call. Outcomes are equal if their `digest` (16 bytes) is.

    `text`: the first `SHORT_TEXT` characters of the result, for messages, without what a harness wraps around it.
    `pending`: the result says that the work still runs. `transient`: an error that may be gone after waiting (429,
    overloaded, 502 to 504, time-outs, connection refused): calling again is not a sign of a loop. `error`: the digest
    of the error message without arguments, of the whole result if it has no message; empty if there is no error, or if
    it says nothing about other calls (a transient one, except for a command that ran for too long; a person's refusal
    of the call). `unknown_tool`: the error says that the called tool does not exist.
    """

    digest: bytes
    kind: OutcomeKind
    text: str
    pending: bool = False
    transient: bool = False
    error: bytes = b""
    unknown_tool: bool = False


def same_outcome(one: Outcome | None, other: Outcome | None) -> bool:
    """Whether two outcomes are equal; an unknown outcome (None) equals any."""
    return one is None or other is None or one.digest == other.digest


def outcome_of(content: Any, is_error: bool | None = None, tool: str = "") -> Outcome | None:
    """Read the outcome of a result: a text, a list of parts, or an object. None if it is unknown (a placeholder).

    `is_error` is the error flag of the client; if None, the words of the result decide. `tool` is the name of the tool
    that was called.
    """
    return (_outcome_of_text if type(content) is str else _outcome_of)(content, is_error, tool)


def _outcome_of(content: Any, is_error: bool | None, tool: str) -> Outcome | None:
    parts = list(parts_of(content))
    if _is_removed(parts):
        return None
    said = combine(map(_read, parts[:_MAX_PARTS_READ]))
    if is_error or (is_error is None and said.error):
        kind = OutcomeKind.ERROR
    elif said.empty:
        kind = OutcomeKind.NO_DATA
    else:
        kind = OutcomeKind.OK
    is_error_outcome = kind is OutcomeKind.ERROR
    written = [*map(_text_of, parts)]
    texts = [text for text in written if text]
    is_short = kind is OutcomeKind.OK and not said.pending and sum(map(len, texts)) <= BRIEF
    digest = _digest(parts, written, kind, is_short=is_short)
    shown = texts[0] if texts else ""
    transient = is_error_outcome and is_transient(shown)
    return Outcome(
        digest,
        kind,
        strip_wrapping(shown)[:SHORT_TEXT],
        pending=said.pending,
        transient=transient,
        error=_complaint(texts, digest) if is_error_outcome else b"",
        unknown_tool=is_error_outcome and names_unknown_tool(texts[:_MAX_PARTS_READ], tool),
    )


def _digest(parts: Sequence[Part], texts: Sequence[str | None], kind: OutcomeKind, *, is_short: bool) -> bytes:
    """Return the digest of a result, which differs between results and between kinds. White space around texts does not
    count."""
    digest = blake2b(digest_size=16)
    for part, text in zip(parts, texts, strict=True):
        if text is not None:
            keep_numbers = kind is not OutcomeKind.ERROR
            digest.update(normalise(text.strip(), keep_numbers=keep_numbers, is_short=is_short))
            digest.update(b"\x00")
        elif isinstance(part, Media):
            digest.update(b"\x01%d\x01" % len(part))
            digest.update(part)
        else:
            digest.update(b"\x02%b" % signature_of("", part))
    digest.update(kind.encode())
    return digest.digest()


_REMEMBERED_LENGTH: Final = 2048


@remembered(entries=1024, longest=_REMEMBERED_LENGTH)
def _outcome_of_text(content: str, is_error: bool | None, tool: str) -> Outcome | None:
    """Read the outcome of a text. Memoized: requests repeat their history's results, and loops repeat one result."""
    return _outcome_of(content, is_error, tool)


def is_failure(content: Any, is_error: bool | None = None) -> bool | None:
    """Whether a result is an error, as `outcome_of` would say, but cheaper; None if the outcome is unknown."""
    if type(content) is str:  # as most results are: no list of parts is needed
        return _is_failure_text(content, is_error)
    parts = list(parts_of(content))
    if _is_removed(parts):
        return None
    return bool(is_error) if is_error is not None else any(map(reports_error, parts[:_MAX_PARTS_READ]))


def _complaint(texts: Sequence[str], digest: bytes) -> bytes:
    """Return the digest of the error in these texts; empty for an error that says nothing about other calls."""
    shown = texts[0] if texts else ""
    if (is_transient(shown) and not is_own_time_out(shown)) or was_refused_by_person(texts):
        return b""
    return error_digest(texts) or digest


@remembered(entries=1024, longest=_REMEMBERED_LENGTH)
def _is_failure_text(content: str, is_error: bool | None) -> bool | None:
    text = strip_additions(content)
    if text and is_placeholder(text):
        return None
    return reports_error(text) if is_error is None else bool(is_error)


def _is_removed(parts: Sequence[Part]) -> bool:
    """Whether the client has replaced the whole result with placeholders."""
    return bool(parts) and all(isinstance(part, str) and part and is_placeholder(part) for part in parts)


def _text_of(part: Part) -> str | None:
    """Return a part as text; None for media, and for values that are nested too deep."""
    if isinstance(part, Media):
        return None
    try:
        return part if isinstance(part, str) else "" if part is None else dumps(part).decode("utf-8", "replace")
    except RecursionError:
        return None


def _read(part: Part) -> ResultStatus:
    """Read the status of a part; media have none, and are not empty."""
    if isinstance(part, str):
        return read_text(part)
    return ResultStatus() if isinstance(part, Media) else read_value(part)
