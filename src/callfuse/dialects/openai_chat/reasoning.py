"""Handles reasoning in chat completions: removes it for other models, and joins the reasoning of two answers.

Reasoning, including Gemini's signatures of calls, is valid only for the model that wrote it.
"""

from collections.abc import Iterator
from typing import Any, Final

from callfuse.dialects.edits import raw_at, raw_elements, raw_list
from callfuse.dialects.openai_chat.details import KEY as DETAILS
from callfuse.dialects.openai_chat.details import call_id_of
from callfuse.dialects.shapes import is_one_of, list_of, object_of
from callfuse.dialects.thought_signatures import add_stand_in, are_demanded, is_signed
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, Path, apply, loads

REASONING_TEXTS: Final = ("reasoning_content", "reasoning")
REASONING_LISTS: Final = (DETAILS, "thinking_blocks")
REASONING: Final = (*REASONING_TEXTS, *REASONING_LISTS)
"""Keys of a message that contain reasoning, which no other model accepts."""
REASONING_PARTS: Final = frozenset({"thinking", "reasoning"})
"""Types of content parts that contain reasoning."""
MESSAGE: Final = ("choices", 0, "message")
"""The path of the first message in a whole answer."""


def first_reasoning(first: bytes, second: bytes, says: Payload) -> Iterator[Edit]:
    """Yield the edits that join the reasoning lists of two answers. If the first has such a list, the second adds only
    the signatures of its own calls, as in a stream."""
    for key in REASONING_LISTS:
        if before := raw_elements(first, (*MESSAGE, key)):
            listed = zip(raw_elements(second, (*MESSAGE, key)), list_of(says.get(key)), strict=False)
            yield Edit((*MESSAGE, key), raw_list((*before, *(raw for raw, detail in listed if call_id_of(detail)))))


def with_reasoning_of(first: bytes, second: bytes, reader: str) -> bytes:
    """Return the second answer, which another model wrote, with the first one's reasoning in place of its own."""
    edits = [*without_reasoning(loads(second)["choices"][0]["message"], MESSAGE, reader)]
    edits += [Edit((*MESSAGE, key), raw) for key in REASONING if (raw := raw_at(first, (*MESSAGE, key)))]
    return apply(second, edits)


def without_reasoning(message: Payload, path: Path, reader: str, *, begins: bool = True) -> Iterator[Edit]:
    """Yield the edits that fit a message for the model `reader`. `begins`: its first call is its answer's first."""
    yield from [Edit((*path, key), None) for key in REASONING if key in message]
    yield from _reasoning_part_edits(message.get("content"), (*path, "content"))
    for at, call in enumerate(list_of(message.get("tool_calls"))):
        place = (*path, "tool_calls", at, "extra_content")
        signed = isinstance(call, dict) and is_signed(call)
        if begins and at == 0 and are_demanded(reader, in_use=signed):
            yield Edit(place, add_stand_in)
        elif signed:
            yield Edit(place, None)


def _reasoning_part_edits(content: Any, path: Path) -> list[Edit]:
    """Return the edits that remove reasoning from a content; a content with no other part becomes null."""
    parts = content if isinstance(content, list) else ()
    gone = [at for at, part in enumerate(parts) if is_one_of(object_of(part).get("type"), REASONING_PARTS)]
    if gone and len(gone) == len(parts):
        return [Edit(path, b"null")]
    return [Edit((*path, at), None) for at in gone]
