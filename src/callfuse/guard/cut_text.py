"""Cut a text that runs away: keep everything up to the end of its first lap.

The guard may have searched only the end of a text, or the text of a spliced answer. This module finds the repetition
again in the model's whole original answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from callfuse.detect.kind import TEXT
from callfuse.detect.runaway import GrowingText, Runaway, end_of_first_lap
from callfuse.dialects.said import SaidPiece
from callfuse.guard.growing_texts import FoundText
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, Path, apply, dumps, loads

_Texts = Mapping[tuple[str, object], list[str]]
Said = Callable[[Payload], Iterable[SaidPiece]]
"""A dialect's `said`."""


def said_before(found: FoundText, payloads: Iterable[Payload], said: Said) -> str:
    """Return the text of an answer before the repetition; all of the text if the reasoning repeats."""
    texts = _texts(payloads, said)
    cut = _place(found, texts) if found.part == TEXT else None
    whole = [(key, "".join(pieces)) for key, pieces in texts.items() if key[0] == TEXT]
    kept = [text[: _end(text, found.found)] if key == cut else text for key, text in whole]
    return "\n\n".join([text for text in kept if text.strip()])


def without_repetition(found: FoundText, body: bytes, said: Said) -> bytes:
    """Return a whole answer whose text ends after the first lap. Reasoning stays, because it may be signed."""
    payload = loads(body)
    texts = _texts((payload,), said)
    place = _place(found, texts) if found.part == TEXT else None
    if place is None:
        return body
    left, shorter = _end("".join(texts[place]), found.found), dict[str, str]()
    for piece in texts[place]:
        shorter[piece] = piece[:left]
        left = max(0, left - len(piece))
    changed = [(path, shorter[text]) for path, text in _strings(payload) if text in shorter]
    return apply(body, [Edit(path, dumps(text)) for path, text in changed])


def _texts(payloads: Iterable[Payload], said: Said) -> _Texts:
    """Return the pieces of each text, by part and place."""
    texts: dict[tuple[str, object], list[str]] = {}
    for payload in payloads:
        for part, place, piece in said(payload):
            texts.setdefault((part, place), []).append(piece)
    return texts


def _place(found: FoundText, texts: _Texts) -> tuple[str, object] | None:
    """Return the key of the text with the repetition: the one that the guard has searched, else the newest that has it,
    because a spliced answer is renumbered. None if no text has it."""
    own = found.part, found.place
    others = [key for key in reversed([*texts]) if key[0] == found.part and key != own]
    for key in (own, *others):
        if found.found.unit in "".join(texts.get(key, ())):
            return key
    return None


def _end(text: str, found: Runaway) -> int:
    """Return where the first lap ends in a whole text, where the repetition may be at another place."""
    known = GrowingText().add(text)
    if known is None:  # not found again, because this text is shorter or is checked at other places
        begin = text.rfind(found.unit) + len(found.unit) - (found.end - found.begin)
        known = found._replace(begin=max(0, begin))
    return min(len(text), end_of_first_lap(text, known))


def _strings(value: Any) -> Iterator[tuple[Path, str]]:
    """Yield the strings in a value, with their paths."""
    left: list[tuple[Path, Any]] = [((), value)]
    while left:
        path, holder = left.pop()
        for key, one in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(one, str):
                yield (*path, key), one
            elif isinstance(one, dict | list):
                left.append(((*path, key), one))
