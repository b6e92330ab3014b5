"""What came of a call: a digest of everything in its result, its kind, and a short text.

Two results are the same outcome if they differ only in what changes from one run to the next: ANSI codes, times,
durations, ids and digits. The digest is over the FULL text and over every other part (images, files) as it stands. A
result that the client emptied or replaced by a placeholder is unknown.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from callfuse.jsontext.load import dumps

SHORT_TEXT: Final = 300
"""Characters of a result that are kept to be shown."""

_MARKER: Final = "[callfuse]"
_OWN_KEY: Final = "callfuse"
_OWN_TEXT = re.compile(r"(?:\A|\n\n)\[callfuse\].*", re.DOTALL)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_VOLATILE = re.compile(
    r"0[xX][0-9a-fA-F]+"  # addresses
    r"|(?<![A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # UUIDs
    r"|(?<![0-9A-Za-z])(?=[a-fA-F]{0,40}\d)[0-9a-fA-F]{7,64}(?![0-9A-Za-z])"  # hashes and object ids
    r"|\d++(?:[.,:]\d++){0,3}+\s?(?:[nuµm]?s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![A-Za-z])"  # durations
    r"|\d++"
)
_PLACEHOLDER = re.compile(
    r"^[\[(<]?(?:old |previous |earlier )?(?:tool )?(?:result|output|content)s?\b[^\n]{0,40}"
    r"\b(?:cleared|removed|omitted|truncated|elided|pruned|compacted)\b[^\n]{0,80}$",
    re.IGNORECASE,
)
_ERROR = re.compile(r"^\W*(?:\w+ ){0,3}(?:\w*error|\w*exception|traceback|failed|failure|fatal|panic)\b", re.IGNORECASE)
_NO_DATA = re.compile(
    r"^\W*(?:null|none|nil|no (?:results?|matches|data|output|files?|entries|records|items)(?: (?:were )?found)?"
    r"|not found|nothing found)?\W*$",
    re.IGNORECASE,
)


class OutcomeKind(StrEnum):
    """How a call ended."""

    OK = "ok"
    NO_DATA = "no_data"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`digest` decides equality; `text` is the beginning of the result, for people and models."""

    digest: bytes
    kind: OutcomeKind
    text: str


def same_outcome(one: Outcome | None, other: Outcome | None) -> bool:
    """Whether two outcomes are equal; an unknown one counts as equal."""
    return one is None or other is None or one.digest == other.digest


def outcome_of(content: Any, is_error: bool | None = None) -> Outcome | None:
    """The outcome that a result of any shape shows: text, a list of content parts, or an object; None if unknown."""
    digest = blake2b(digest_size=16)
    shown = ""
    empty = True
    for part in _parts(content):
        if isinstance(part, str):
            text = _OWN_TEXT.sub("", part) if _MARKER in part else part
            digest.update(normalised(text).encode("utf-8", "surrogatepass"))
            shown = shown or text
        else:
            digest.update(part)
            empty = False
        digest.update(b"\x00")
    if _PLACEHOLDER.match(shown.strip()[:SHORT_TEXT]):
        return None
    if is_error or (is_error is None and _ERROR.match(shown[:SHORT_TEXT])):
        kind = OutcomeKind.ERROR
    elif empty and _NO_DATA.match(shown[:SHORT_TEXT]):
        kind = OutcomeKind.NO_DATA
    else:
        kind = OutcomeKind.OK
    digest.update(b"error" if kind is OutcomeKind.ERROR else b"")
    return Outcome(digest.digest(), kind, shown[:SHORT_TEXT])


def normalised(text: str) -> str:
    """A text without what changes from run to run."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _VOLATILE.sub("#", text)


def _parts(content: Any) -> Iterator[str | bytes]:
    """Text parts as text, every other part as the bytes of its JSON."""
    if content is None:
        return
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else part
            if not isinstance(text, str):
                yield dumps(_without_caching(part))
            elif not text.startswith(_MARKER):
                yield text
    elif isinstance(content, dict) and str(content.get(_OWN_KEY)).startswith(_MARKER):
        yield from _parts({key: value for key, value in content.items() if key != _OWN_KEY})
    else:
        yield dumps(content).decode("utf-8", "replace")


def _without_caching(part: Any) -> Any:
    """A part without the mark that tells a vendor to cache up to here: clients move it from turn to turn."""
    return {key: value for key, value in part.items() if key != "cache_control"} if isinstance(part, dict) else part
