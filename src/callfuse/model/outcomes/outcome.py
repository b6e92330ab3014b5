"""The outcome of a call, and when two are the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from callfuse.harness import is_placeholder, strip_additions
from callfuse.model.outcomes.errors import gist, is_transient
from callfuse.model.outcomes.normalise import normalised
from callfuse.model.outcomes.parts import Media, Part, parts_of
from callfuse.model.outcomes.reading import Reading, read_text, read_value, tells_error, together
from callfuse.model.signature import signature_of
from callfuse.wire.jsontext import dumps

SHORT_TEXT: Final = 300
"""Characters of a result that are kept to be shown."""

_READ: Final = 8
"""Parts of a result that are asked what they say."""


class OutcomeKind(StrEnum):
    """How a call ended."""

    OK = "ok"
    NO_DATA = "no_data"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`digest` decides equality; `text` is the beginning of the result, for people and models.

    `pending`: the result says that the work still runs. `transient`: the error's cause lies outside (429, 5xx, a denied
    permission), so that calling again is no sign of a loop. `error`: which error it is, whatever the arguments: equal
    for equal errors, empty where the result is none or does not say which.
    """

    digest: bytes
    kind: OutcomeKind
    text: str
    pending: bool = False
    transient: bool = False
    error: bytes = b""


def same_outcome(one: Outcome | None, other: Outcome | None) -> bool:
    """Whether two outcomes are equal; an unknown one counts as equal."""
    return one is None or other is None or one.digest == other.digest


def outcome_of(content: Any, is_error: bool | None = None) -> Outcome | None:
    """The outcome that a result of any shape shows: text, a list of parts, or an object; None if it is unknown.

    `is_error` is the client's own flag; where it has none, the result's own words decide.
    """
    is_kept = isinstance(content, str) and len(content) <= _KEPT_LENGTH
    return (_kept if is_kept else _outcome_of)(content, is_error)


def _outcome_of(content: Any, is_error: bool | None) -> Outcome | None:
    parts = list(parts_of(content))
    if _is_gone(parts):
        return None
    digest = blake2b(digest_size=16)
    texts: list[str] = []
    for part in parts:
        text, written = _written(part)
        digest.update(written)
        if text:
            texts.append(text)
    shown = texts[0] if texts else ""
    said = together(map(_read, parts[:_READ]))
    if is_error or (is_error is None and said.error):
        kind = OutcomeKind.ERROR
    elif said.empty:
        kind = OutcomeKind.NO_DATA
    else:
        kind = OutcomeKind.OK
    digest.update(kind.encode())
    failed = kind is OutcomeKind.ERROR
    return Outcome(
        digest.digest(),
        kind,
        shown[:SHORT_TEXT],
        pending=said.pending,
        transient=failed and is_transient(shown),
        error=gist(texts) if failed else b"",
    )


_kept = lru_cache(maxsize=1024)(_outcome_of)
"""A history comes again with each request of its session, and the result of a loop with each of its rounds."""
_KEPT_LENGTH: Final = 2048


def failed(content: Any, is_error: bool | None = None) -> bool | None:
    """Whether a result is an error, for a part of what its outcome costs; None if its outcome is unknown."""
    is_kept = isinstance(content, str) and len(content) <= _KEPT_LENGTH
    return (_failed_kept if is_kept else _failed)(content, is_error)


def _failed(content: Any, is_error: bool | None) -> bool | None:
    if type(content) is str:  # as most are
        text = strip_additions(content)
        if text and is_placeholder(text):
            return None
        return tells_error(text) if is_error is None else bool(is_error)
    parts = list(parts_of(content))
    if _is_gone(parts):
        return None
    return bool(is_error) if is_error is not None else any(map(tells_error, parts[:_READ]))


_failed_kept = lru_cache(maxsize=1024)(_failed)


def _is_gone(parts: Sequence[Part]) -> bool:
    """Whether the client has put placeholders where a result was."""
    return bool(parts) and all(isinstance(part, str) and part and is_placeholder(part) for part in parts)


def _written(part: Part) -> tuple[str, bytes]:
    """A part as text, empty for media, and as what is digested; white space around a text does not count."""
    if isinstance(part, Media):
        return "", b"\x01%d\x01%b" % (len(part), part)
    try:
        text = part if isinstance(part, str) else "" if part is None else dumps(part).decode("utf-8", "replace")
    except RecursionError:
        return "", b"\x02%b" % signature_of("", part)
    return text, normalised(text.strip()) + b"\x00"


def _read(part: Part) -> Reading:
    """What a part says; media say nothing, and are something."""
    if isinstance(part, str):
        return read_text(part)
    return Reading() if isinstance(part, Media) else read_value(part)
