"""Reads what a person typed in a message, and callfuse's own answers, for in-chat commands.

Out of a message come its texts with their paths, so that they can be edited. Texts that a harness adds to a user
message (reminders, reports of tools that it runs itself) do not count as typed.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from callfuse.harness import MARKER, is_automatic, is_tool_report
from callfuse.wire.jsontext import Path

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"

_KINDS: Final = (None, "text", "input_text", "output_text")
"""Types of text parts."""


class TypedText(NamedTuple):
    """One text of a message. `path`: of the text. `part`: path of the content part with it; None if the text is the
    whole content."""

    path: Path
    text: str
    part: Path | None = None


class TypedMessage(NamedTuple):
    """What a person typed in one message.

    `reminded`: it also has texts of a harness. `more`: it also has results, images or the like. `needs_answer`: the
    vendor demands that turns of user and model alternate.
    """

    path: Path
    texts: tuple[TypedText, ...]
    reminded: bool = False
    more: bool = False
    needs_answer: bool = False


class OwnAnswer(NamedTuple):
    """An answer of callfuse's own, whole or as a stream."""

    content_type: bytes
    body: bytes


def read_typed(
    path: Path, content: Any, *, key: str = "content", more: bool = False, needs_answer: bool = False
) -> TypedMessage:
    """What a person typed in the message at `path`, whose content (a string or a list of parts) is under `key`."""
    texts = list(_texts((*path, key), content))
    spoken = tuple(text for text in texts if not is_automatic(text.text))
    if any(is_tool_report(text.text) for text in texts):
        return TypedMessage(path, (), more=True, needs_answer=needs_answer)
    more |= isinstance(content, list) and len(content) > len(texts)
    return TypedMessage(path, spoken, len(spoken) < len(texts), more, needs_answer)


def own_text(content: Any, *, more: bool = False) -> str:
    """callfuse's own text in an assistant message; empty if it has another text or anything else (`more`)."""
    texts = [one.text for one in _texts((), content)]
    alone = len(texts) == 1 and not more and (isinstance(content, str) or len(content) == 1)
    return texts[0] if alone and texts[0].startswith(MARKER) else ""


def _texts(path: Path, content: Any) -> Iterator[TypedText]:
    """The texts of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        yield TypedText(path, content)
    for at, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, str):
            yield TypedText((*path, at), part, (*path, at))
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") in _KINDS:
            yield TypedText((*path, at, "text"), part["text"], (*path, at))
