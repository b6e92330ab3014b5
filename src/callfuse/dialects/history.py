"""What all dialects share for reading a history: a base class, texts, pairing of calls with results, edits."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from callfuse.dialects.base import Note
from callfuse.dialects.continued import Nudges, ReadHistory
from callfuse.dialects.declared import RequestWithTools
from callfuse.dialects.nudges import Messages, find_nudges
from callfuse.harness import OWN_KEY, is_automatic
from callfuse.model import PastCall, PlainResult, Round, ToolCall
from callfuse.model.signature import Signature
from callfuse.wire.jsontext import END, Edit, Path, dumps


class RequestWithHistory(RequestWithTools):
    """A request whose messages are read for rounds (backwards) and nudges, after those read in an earlier request."""

    __slots__ = ("_history",)

    def __init__(self) -> None:
        super().__init__()
        self._history: ReadHistory | None = None

    @abstractmethod
    def _rounds_from(self, begin: int) -> Iterator[Round | None]:
        """Yield the rounds of the messages from a position on, newest first, with None for each message of a person."""

    @abstractmethod
    def _is_seam(self, position: int) -> bool:
        """Whether an answer begins at a position, after a message that is not the model's."""

    @abstractmethod
    def _said_from(self, begin: int) -> Messages:
        """Return the messages from a position on with their speakers, for the search for nudges."""

    def rounds(self) -> Iterator[Round | None]:
        """Yield the rounds with their results, newest first, with None for each message of a person."""
        if self._history is None:
            return self._rounds_from(0)
        return self._history.rounds(self._rounds_from, self._is_seam)

    def sealed_summary(self, at: int) -> str:
        """Return the vendor's encrypted summary at this position; empty, as most vendors write none."""
        return ""

    def take_history(self, history: ReadHistory) -> None:
        """Reuse what was read from an earlier request with the same first messages."""
        self._history = history

    @property
    def _nudges(self) -> Nudges:
        """The nudges of the history, searched for only once."""
        if self._history is None:
            self._history = ReadHistory(is_kept=False)
        return self._history.nudges(lambda known: find_nudges(self._said_from(known.end), known))


def texts(content: Any) -> list[bytes]:
    """Return the texts of a message's content (a string or a list of parts); for a part without text, its type."""
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
    """Return a 16-byte digest of texts, separated by NUL."""
    return blake2b(b"\x00".join(parts), digest_size=16).digest()


def is_own_or_reminder(content: Any) -> bool:
    """Whether no person wrote this user message: all its texts are callfuse's or a harness's (reminders, retries)."""
    if isinstance(content, str):
        return is_automatic(content)
    found = [text.decode("utf-8", "replace") for text in texts(content)]
    return bool(found) and all(map(is_automatic, found))


def pair(
    calls: Sequence[ToolCall],
    results: Sequence[tuple[str, PlainResult]],
    keys: Sequence[str] | None = None,
    pairing: "Pairing | None" = None,
) -> tuple[PastCall, ...]:
    """Return the calls, each with its result: matched by id, or by order if ids repeat or are missing.

    `keys`: for each call, the name that results use for it, if that is not the id. `pairing`: the `Pairing` of the
    results' ids, if it exists already.
    """
    if len(calls) == 1 == len(results):
        (call,), ((id_, result),) = calls, results
        key = keys[0] if keys else call.id
        return (PastCall(call, result if id_ == key or not (id_ and key) else None),)
    places = (pairing or Pairing([id_ for id_, _ in results])).places(keys or [call.id for call in calls])
    return tuple(
        [PastCall(call, None if at is None else results[at][1]) for call, at in zip(calls, places, strict=True)]
    )


class Pairing:
    """Finds the results of calls: by id, or by order if ids repeat or are missing.

    `ids`: for each result, the id by which it names its call. Created once for results that several answers share,
    because the constructor reads all of them.
    """

    __slots__ = ("_by_id", "_ids")

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids
        self._by_id: dict[str, list[int]] = {}
        for at, id_ in enumerate(ids):
            self._by_id.setdefault(id_, []).append(at)

    def places(self, keys: Sequence[str]) -> list[int | None]:
        """Return, for each call of one answer, by its id (or key), the index of its result; None without a result."""
        ids = self._ids
        if len(keys) == 1 == len(ids):
            return [0 if ids[0] == keys[0] or not (ids[0] and keys[0]) else None]
        if not any(keys):
            return [at if at < len(ids) else None for at in range(len(keys))]
        taken: dict[str, int] = {}
        return [self._take(key, taken) for key in keys]

    def _take(self, key: str, taken: dict[str, int]) -> int | None:
        """Return the index of the next result with this id, or without one; None if all are `taken` (counted by id)."""
        for id_ in (key, ""):
            places, count = self._by_id.get(id_, ()), taken.get(id_, 0)
            if count < len(places):
                taken[id_] = count + 1
                return places[count]
        return None


def note_places(
    notes: Sequence[Note], calls: Sequence[ToolCall], places: Sequence[int | None]
) -> Iterator[tuple[int, str]]:
    """Return the index of the result and the text of each note on a call of one answer; skip calls without a result.

    `places`: for each call, the index of its result.
    """
    ignored: dict[str, set[frozenset[str]]] = {}
    for note in notes:
        ignored.setdefault(note.call.full_name, set()).add(note.call.ignore)
    known: dict[tuple[str, Signature, frozenset[str]], int | None] = {}
    for call, at in zip(calls, places, strict=True):
        for names in ignored.get(call.full_name, ()):
            known.setdefault((call.id, call.ignoring(names).signature, names), at)
    for note in notes:
        wanted = note.call
        at = known.get((wanted.id, wanted.signature, wanted.ignore))
        if at is not None:
            yield at, note.text


def by_position(notes: Iterable[Note]) -> dict[int, list[Note]]:
    """Group notes by the positions of their calls' rounds."""
    found: dict[int, list[Note]] = {}
    for note in notes:
        found.setdefault(note.position, []).append(note)
    return found


def without_parts(message: Any, path: Path, is_gone: Callable[[Any], bool]) -> Iterator[Edit]:
    """Return the edits that remove parts of a message's content. A history's message (`path` is not empty) with no
    other parts is removed."""
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else ()
    gone = [at for at, part in enumerate(parts) if is_gone(part)]
    if path and gone and len(gone) == len(parts):
        yield Edit(path, None)
    else:
        yield from (Edit((*path, "content", at), None) for at in gone)


def append_text(path: Path, content: Any, text: str, *, text_part: str | None = "text") -> list[Edit]:
    """Return the edit that appends a text to a result's content: to its last text, as a new part, or as a key of an
    object. Empty if the content allows none of these. `text_part`: the type of text parts (None: they have no type)."""
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
    """Return a JSON string with a text appended after a blank line, unless another callfuse has appended it already;
    only the text if the string was empty."""
    if not old.startswith(b'"') or old == b'""':
        return dumps(text)
    return old if dumps(text)[1:-1] in old else old[:-1] + dumps("\n\n" + text)[1:]
