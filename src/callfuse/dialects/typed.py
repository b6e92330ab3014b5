"""Reads what a person typed in a message, and callfuse's own answers, for in-chat commands.

Each text of a message is returned with its path, so that it can be edited. Texts that a harness adds to a user message
(reminders, reports of tools that it runs itself) do not count as typed.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from callfuse.dialects.shapes import is_one_of
from callfuse.harness import MARKER, has_own_words, is_automatic, is_tool_report
from callfuse.wire.jsontext import Path

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"

_KINDS: Final = (None, "text", "input_text", "output_text")
"""Types of text parts."""
_ATTACHED: Final = frozenset((
    "audio", "container_upload", "document", "file", "image", "image_url", "input_audio", "input_file", "input_image",
    "input_video", "video", "video_url",
))  # fmt: skip
"""Types of parts that a person attaches. Any other part (a result, a source, a thought) is a tool's or a harness's."""
_ATTACHED_KEYS: Final = frozenset((
    "audio", "cachePoint", "document", "fileData", "file_data", "image", "inlineData", "inline_data",
    "mediaResolution", "media_resolution", "text", "video", "videoMetadata", "video_metadata",
))  # fmt: skip
"""Keys that identify parts without a type: those of Gemini and Bedrock."""


class Speech(Enum):
    """What the model says in a message: nothing, words, or calls."""

    NOTHING = 0
    WORDS = 1
    CALLS = 2


class Utterance(NamedTuple):
    """The kind of speech in the model's message, and its words; empty if the request does not contain them."""

    what: Speech = Speech.NOTHING
    words: str = ""


NOTHING_SAID: Final = Utterance()
CALLS_MADE: Final = Utterance(Speech.CALLS)


class TypedText(NamedTuple):
    """One text of a message. `path`: the path of the text. `part`: the path of the content part that contains it; None
    if the text is the whole content. `place`: its number among the texts of the message."""

    path: Path
    text: str
    part: Path | None = None
    place: int = 0


class TypedMessage(NamedTuple):
    """What a person typed in one message.

    `written`: all texts of the message, by `TypedText.place`. `reminded`: it also has texts of a harness. `more`: it
    also has results, images or the like. `needs_answer`: the vendor demands that turns of user and model alternate.
    """

    path: Path
    texts: tuple[TypedText, ...]
    written: tuple[str, ...] = ()
    reminded: bool = False
    more: bool = False
    needs_answer: bool = False


class OwnAnswer(NamedTuple):
    """An answer that callfuse wrote, whole or as a stream."""

    content_type: bytes
    body: bytes


def read_typed(
    path: Path, content: Any, *, key: str = "content", more: bool = False, needs_answer: bool = False
) -> TypedMessage:
    """Return what a person typed in the message at `path`; its content (a string or a list of parts) is under `key`."""
    texts = list(_texts((*path, key), content))
    parts = content if isinstance(content, list) else ()
    written = tuple(one.text for one in texts)
    if not all(map(_is_typed_or_attached, parts)) or any(is_tool_report(one) or has_own_words(one) for one in written):
        return TypedMessage(path, (), more=True, needs_answer=needs_answer)
    spoken = tuple(one._replace(place=at) for at, one in enumerate(texts) if not is_automatic(one.text))
    more |= len(parts) > len(texts)
    return TypedMessage(path, spoken, written, len(spoken) < len(texts), more, needs_answer)


def _is_typed_or_attached(part: Any) -> bool:
    """Whether a part is a text, or a file or other media that a person attached."""
    if not isinstance(part, dict):
        return isinstance(part, str)
    kind = part.get("type")
    if kind is None:
        return _ATTACHED_KEYS.issuperset(part)
    return is_one_of(kind, _KINDS) or (is_one_of(kind, _ATTACHED) and "text" not in part)


def own_text(content: Any, *, more: bool = False) -> str:
    """Return callfuse's own text in an assistant message; empty if it has another text or anything else (`more`)."""
    texts = [one.text for one in _texts((), content)]
    alone = len(texts) == 1 and not more and (isinstance(content, str) or len(content) == 1)
    return texts[0] if alone and texts[0].startswith(MARKER) else ""


def speech_of(content: Any, *, calls: bool = False) -> Utterance:
    """Return what the model says in a content. `calls`: the content has calls for the client."""
    if calls:
        return CALLS_MADE
    words = "\n".join([one.text for one in _texts((), content)])
    return Utterance(Speech.WORDS, words) if words.strip() else NOTHING_SAID


def _texts(path: Path, content: Any) -> Iterator[TypedText]:
    """Return the texts of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        yield TypedText(path, content)
    for at, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, str):
            yield TypedText((*path, at), part, (*path, at))
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") in _KINDS:
            yield TypedText((*path, at, "text"), part["text"], (*path, at))
