"""Functions on histories that all dialects share: texts of a content, pairing of calls with results, edits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from callfuse.harness import OWN_KEY, is_automatic
from callfuse.model import PastCall, PlainResult, ToolCall
from callfuse.wire.jsontext import END, Edit, Path, dumps


def texts(content: Any) -> list[bytes]:
    """The texts of a message's content (a string or a list of parts); for parts without text their type."""
    if isinstance(content, str):
        return [content.encode("utf-8", "surrogatepass")]
    found = []
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            found.append(text.encode("utf-8", "surrogatepass"))
        elif isinstance(part, dict):
            found.append(str(part.get("type")).encode("utf-8", "surrogatepass"))
    return found


def digest_of(parts: Iterable[bytes]) -> bytes:
    """A 16-byte digest of texts, separated by NUL."""
    return blake2b(b"\x00".join(parts), digest_size=16).digest()


def is_own_or_reminder(content: Any) -> bool:
    """Whether a user message has nothing but texts of callfuse or a harness (reminders, retries), so no person wrote
    it."""
    if isinstance(content, str):
        return is_automatic(content)
    found = [text.decode("utf-8", "replace") for text in texts(content)]
    return bool(found) and all(map(is_automatic, found))


def pair(
    calls: Sequence[ToolCall], results: Sequence[tuple[str, PlainResult]], keys: Sequence[str] | None = None
) -> tuple[PastCall, ...]:
    """The calls, each with its result: matched by id, and by order if ids repeat or are missing.

    `keys`: for each call, what results name it by, if that is not the id.
    """
    if len(calls) == 1 == len(results):
        (call,), ((id_, result),) = calls, results
        key = keys[0] if keys else call.id
        return (PastCall(call, result if id_ == key or not (id_ and key) else None),)
    places = _pairing(keys or [call.id for call in calls], [id_ for id_, _ in results])
    return tuple(
        [PastCall(call, None if at is None else results[at][1]) for call, at in zip(calls, places, strict=True)]
    )


def result_at(
    calls: Sequence[ToolCall], ids: Sequence[str], wanted: ToolCall, keys: Sequence[str] | None = None
) -> int | None:
    """The index, among results with these ids (or keys), of the one of the wanted call; None if there is none."""
    for call, at in zip(calls, _pairing(keys or [call.id for call in calls], ids), strict=True):
        is_named = call.id == wanted.id and call.full_name == wanted.full_name
        if is_named and call.ignoring(wanted.ignore).signature == wanted.signature:
            return at
    return None


def _pairing(keys: Sequence[str], ids: Sequence[str]) -> Iterator[int | None]:
    """For each call, by its key, the index of its result."""
    if len(keys) == 1 and len(ids) == 1:
        yield 0 if ids[0] == keys[0] or not (ids[0] and keys[0]) else None
        return
    if not any(keys):
        yield from (at if at < len(ids) else None for at in range(len(keys)))
        return
    free: dict[str, list[int]] = {}
    for at in reversed(range(len(ids))):
        free.setdefault(ids[at], []).append(at)
    nameless = free.get("", [])
    for key in keys:
        places = free.get(key) or nameless
        yield places.pop() if places else None


def without_parts(message: Any, path: Path, is_gone: Callable[[Any], bool]) -> Iterator[Edit]:
    """The edits that remove parts of a message's content; a message of a history (`path` is not empty) with nothing
    else is removed."""
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else ()
    gone = [at for at, part in enumerate(parts) if is_gone(part)]
    if path and gone and len(gone) == len(parts):
        yield Edit(path, None)
    else:
        yield from (Edit((*path, "content", at), None) for at in gone)


def append_text(path: Path, content: Any, text: str, *, text_part: str | None = "text") -> list[Edit]:
    """The edit that appends a text to a result's content: to its last text, as a new part, or as a key of an object.
    Empty if the content allows none of these. `text_part`: the type of text parts; None: they have no type."""
    if isinstance(content, list):
        for at in reversed(range(len(content))):
            part = content[at]
            if isinstance(part, str):
                return [Edit((*path, at), partial(_longer, text))]
            if isinstance(part, dict) and part.get("type") == text_part and isinstance(part.get("text"), str):
                return [Edit((*path, at, "text"), partial(_longer, text))]
        return [Edit((*path, END), dumps(({"type": text_part} if text_part else {}) | {"text": text}))]
    if isinstance(content, dict):
        return [Edit((*path, OWN_KEY), dumps(text))]
    return [Edit(path, partial(_longer, text))] if content is None or isinstance(content, str) else []


def _longer(text: str, old: bytes) -> bytes:
    """A JSON string with a text appended after a blank line, unless another guard did so; the text if it was empty."""
    if not old.startswith(b'"') or old == b'""':
        return dumps(text)
    return old if dumps(text)[1:-1] in old else old[:-1] + dumps("\n\n" + text)[1:]
