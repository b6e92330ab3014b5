"""Find fields whose values change from run to run, by name: `"pid": 4711`, `elapsed=0.52`, `Request ID: ab-12`.

Fields are JSON keys, also in JSON within a text, and lines of `key=value` and `key: value`. A name of several words is
recognised by its last words, whether written `requestId`, `request_id`, `request-id` or `Request ID`; a unit at its end
does not matter (`elapsed_ms`).
"""

import re
from typing import Final

from callfuse.memo import remembered

_TIMES: Final = frozenset((
    "commit", "date", "datetime", "digest", "duration", "elapsed", "eta", "etag", "expiry", "hash", "latency", "nonce",
    "now", "pgid", "pid", "ppid", "runtime", "sha", "tid", "time", "timestamp", "took", "traceparent", "ts", "ttl",
    "uptime",
))  # fmt: skip
"""The last word of names whose value always counts as changing."""
_EPOCHS: Final = frozenset((
    "at", "ctime", "created", "ended", "epoch", "expires", "finished", "modified", "mtime", "since", "started",
    "updated",
))  # fmt: skip
"""The last word of names whose value is a time if it is large enough; a small number may be a count."""
_IDS: Final = frozenset(("correlation", "invocation", "process", "request", "span", "thread", "trace"))
"""The word before `id`. Other ids are kept: they name what a tool was asked for or has created."""
_UNITS: Final = frozenset((
    "hours", "in", "micros", "microseconds", "millis", "milliseconds", "minutes", "ms", "nanos", "ns", "s", "sec",
    "seconds", "secs", "us", "utc",
))  # fmt: skip
_LONGEST: Final = 48
"""How many bytes of a name are read; no name above is as long."""

_SHAPE: Final = bytes.maketrans(b"123456789=", b"000000000:")
_FIELD: Final = re.compile(
    rb": ?+(?:\\*+[\"'])?+([^\s\"',;)\]}>\\0]{0,40}+0[^\s\"',;)\]}>\\]*+)"  # a value with a digit in it
)
"""The colon and the value of a field, in a text's `shape_of`."""
_QUOTES: Final = b"\"'\\ "
"""The characters that may be between a name and its colon."""
_MOST_QUOTES: Final = 3
_NAME: Final = re.compile(rb":[\"'\\ ]{0,%d}+([\"'\\ ]|[0A-Za-z _-]{0,%d}+)" % (_MOST_QUOTES, _LONGEST))
"""A colon and what is before it, in the reversed `shape_of` a text: the name of a field, or one more quote."""
_FEW_NAMES: Final = 100
_EPOCH: Final = re.compile(rb"[0-9]{9,19}(?:\.[0-9]{1,9})?")
_LETTERS: Final = bytes(
    code if chr(code).isascii() and chr(code).isalnum() else 32 if code in b" _-" else 10 for code in range(256)
)
"""For `translate`: characters between the words of a name become spaces, and those that end a name line feeds."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def shape_of(raw: bytes) -> bytes:
    """Return the text with `0` for each digit and `:` for `=`; its length stays the same."""
    return raw.translate(_SHAPE)


def blank_fields(raw: bytes, shape: bytes) -> bytes:
    """Replace values that change from run to run and contain a digit by `0`. `shape`: the text's `shape_of`. Linear
    time."""
    if _FIELD.search(shape) is None or not _may_change(shape):
        return raw
    kept: list[bytes] = []
    end = 0
    for match in _FIELD.finditer(shape):
        start = match.start()
        before = raw[max(0, start - _LONGEST) : start]
        if before.endswith(b'"'):  # a JSON key: only the key itself, so that `_changes` finds it in its memo
            before = before[before.rfind(b'"', 0, -1) + 1 :]
        changes = _changes(before)
        if changes or (changes is None and _EPOCH.fullmatch(raw, *match.span(1))):
            kept.append(raw[end:start])
            end = match.end()
    return b":0".join([*kept, raw[end:]]) if kept else raw


def _may_change(shape: bytes) -> bool:
    """Cheap pre-check: whether a field has a value that may change. False is certain. Also True for a text with too
    many names, and where `blank_fields` may read less of a name than this function."""
    names = set(_NAME.findall(shape[::-1]))
    if len(names) > _FEW_NAMES:
        return True
    for backwards in names:
        is_cut = len(backwards) > _LONGEST - _MOST_QUOTES or (backwards and backwards[0] in _QUOTES)
        if is_cut or _changes(backwards[::-1]) is not False:
            return True
    return False


@remembered(entries=4096, longest=_LONGEST)
def _changes(before: bytes) -> bool | None:
    """Whether the field whose name ends this text has a value that changes. None: only if the value is a time in
    seconds or milliseconds."""
    name = before.rstrip(_QUOTES).translate(_LETTERS)
    name = name[name.rfind(b"\n") + 1 :]
    words = [word.lower() for word in _WORD.findall(name.decode("ascii"))]
    while len(words) > 1 and words[-1] in _UNITS:
        words.pop()
    if not words:
        return False
    last = words[-1]
    first = words[-2] if len(words) > 1 else ""
    if last in _TIMES or (last == "id" and first in _IDS) or (last.endswith("id") and last[:-2] in _IDS):
        return True
    return None if last in _EPOCHS else False
