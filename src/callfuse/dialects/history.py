"""What the histories of all dialects have in common: texts in content of any shape, results paired with calls."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from callfuse.harness import OWN_KEY, is_automatic
from callfuse.model import PastCall, PlainResult, ToolCall
from callfuse.wire.jsontext import END, Edit, dumps


def texts(content: Any) -> list[bytes]:
    """The texts of a message's content, which is a string or a list of parts; of other parts their type."""
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
    """A digest of texts, each apart from the next."""
    return blake2b(b"\x00".join(parts), digest_size=16).digest()


def is_own_or_reminder(content: Any) -> bool:
    """Whether a user message holds nothing but callfuse's own texts, and a harness's reminders and retries."""
    if isinstance(content, str):
        return is_automatic(content)
    found = [text.decode("utf-8", "replace") for text in texts(content)]
    return bool(found) and all(map(is_automatic, found))


def pair(
    calls: Sequence[ToolCall], results: Sequence[tuple[str, PlainResult]], keys: Sequence[str] | None = None
) -> tuple[PastCall, ...]:
    """The calls, each with its result: by id, and by order where ids repeat or lack.

    `keys` are what the results name their calls by, call for call, where that is not the id.
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
    """Which of the results with these ids (or keys) belongs to the wanted call, known by id and signature."""
    for call, at in zip(calls, _pairing(keys or [call.id for call in calls], ids), strict=True):
        is_named = call.id == wanted.id and call.full_name == wanted.full_name
        if is_named and call.ignoring(wanted.ignore).signature == wanted.signature:
            return at
    return None


def _pairing(keys: Sequence[str], ids: Sequence[str]) -> Iterator[int | None]:
    """For each call, by its key, the place of its result."""
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


def without_parts(message: Any, path: tuple[str | int, ...], is_gone: Callable[[Any], bool]) -> Iterator[Edit]:
    """The edits that take parts out of a message's content; a history loses a message that has nothing else."""
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else ()
    gone = [at for at, part in enumerate(parts) if is_gone(part)]
    if path and gone and len(gone) == len(parts):
        yield Edit(path, None)
    else:
        yield from (Edit((*path, "content", at), None) for at in gone)


def grown(path: tuple[str | int, ...], content: Any, text: str, *, text_part: str | None = "text") -> list[Edit]:
    """The edit that adds a text to a result's content: to its last text, as a new part, or as an object's key. None
    for a content that has room for neither. `text_part` is the type of parts that are texts; None: they have none."""
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
    """A JSON string with a text added after a blank line, unless another guard has added it; else the text alone."""
    if not old.startswith(b'"') or old == b'""':
        return dumps(text)
    return old if dumps(text)[1:-1] in old else old[:-1] + dumps("\n\n" + text)[1:]
