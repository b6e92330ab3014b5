"""What a person has typed into a conversation, and what callfuse has answered there without any model.

Messages of foreign JSON enter; texts with the paths under which they can be changed leave. What a harness puts into
a user's message is not typed: reminders, reports of tools that it runs by itself.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from callfuse.harness import MARKER, is_automatic, is_tool_report

Path = tuple[str | int, ...]

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"

_KINDS: Final = (None, "text", "input_text", "output_text")
"""Types of parts that are texts."""


class TypedText(NamedTuple):
    """One text. `part` is where the part of a message stands that has nothing but it; None where it is the message's
    whole content."""

    path: Path
    text: str
    part: Path | None = None


class TypedMessage(NamedTuple):
    """What a person has typed in one message, and what else there is in it.

    `reminded`: texts of a harness. `more`: results, images and the like. `needs_answer`: the vendor wants the model's
    turns and the user's to alternate.
    """

    path: Path
    texts: tuple[TypedText, ...]
    reminded: bool = False
    more: bool = False
    needs_answer: bool = False


class OwnAnswer(NamedTuple):
    """An answer without any model, whole or as a stream: its content type and its body."""

    content_type: bytes
    body: bytes


def read_typed(
    path: Path, content: Any, *, key: str = "content", more: bool = False, needs_answer: bool = False
) -> TypedMessage:
    """What is typed in the message at `path`, whose content (a string, or a list of parts) stands under `key`."""
    texts = list(_texts((*path, key), content))
    spoken = tuple(text for text in texts if not is_automatic(text.text))
    if any(is_tool_report(text.text) for text in texts):
        return TypedMessage(path, (), more=True, needs_answer=needs_answer)
    more |= isinstance(content, list) and len(content) > len(texts)
    return TypedMessage(path, spoken, len(spoken) < len(texts), more, needs_answer)


def own_text(content: Any, *, more: bool = False) -> str:
    """What callfuse says in a message of the model's; nothing where anybody else does, or something stands beside."""
    texts = [one.text for one in _texts((), content)]
    alone = len(texts) == 1 and not more and (isinstance(content, str) or len(content) == 1)
    return texts[0] if alone and texts[0].startswith(MARKER) else ""


def _texts(path: Path, content: Any) -> Iterator[TypedText]:
    """The texts of a content, which may be one text."""
    if isinstance(content, str):
        yield TypedText(path, content)
    for at, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, str):
            yield TypedText((*path, at), part, (*path, at))
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") in _KINDS:
            yield TypedText((*path, at, "text"), part["text"], (*path, at))
