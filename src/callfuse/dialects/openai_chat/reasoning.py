"""Reasoning in chat completions, which no other model takes back, and signatures on calls, which stand for it.

A message enters: of a history, of a whole answer, or the delta of a stream. The edits leave that take the reasoning
out of it. Where the model that is to read it may want signatures, the first call gets Google's stand-in.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.thought_signatures import STAND_IN, are_demanded
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, dumps, loads

KEYS: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
PARTS: Final = frozenset({"thinking", "reasoning"})
"""Types of content parts."""

Path = tuple[str | int, ...]


def without_reasoning(message: Payload, path: Path, reader: str, *, begins: bool = True) -> Iterator[Edit]:
    """The edits that make a message fit for the model named `reader`; `begins`: its first call is its answer's."""
    for key in KEYS:
        if key in message:
            yield Edit((*path, key), None)
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    gone = [at for at, part in enumerate(parts) if isinstance(part, dict) and part.get("type") in PARTS]
    if gone and len(gone) == len(parts):
        yield Edit((*path, "content"), b"null")
    else:
        yield from (Edit((*path, "content", at), None) for at in gone)
    calls: Sequence[Any] = message.get("tool_calls") or ()
    for at, call in enumerate(calls):
        place = (*path, "tool_calls", at, "extra_content")
        signed = isinstance(call, dict) and is_signed(call)
        if begins and at == 0 and are_demanded(reader, in_use=signed):
            yield Edit(place, stood_in)
        elif signed:
            yield Edit(place, None)


def is_signed(call: Payload) -> bool:
    """Whether a call, or what a vendor added to it, carries Gemini's thought signature."""
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    return isinstance(google, dict) and bool(google.get("thought_signature"))


def stood_in(extra: bytes) -> bytes:
    """What a vendor added to a call, with the stand-in for a thought signature."""
    value: Payload = (loads(extra) if extra else None) or {}
    google: Payload = value.get("google") or {}
    return dumps(value | {"google": google | {"thought_signature": STAND_IN}})
