"""Split the content of a result into parts: texts, values, and media as the bytes of their JSON.

Additions by others than the tool are left out: texts of callfuse, reminders that harnesses append (Claude Code appends
them to the last result of a message, and they change from turn to turn), and `cache_control`, which clients move as the
conversation grows.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from callfuse.harness import MARKER, OWN_KEY, strip_additions
from callfuse.wire.jsontext import dumps

_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_MEDIA = re.compile("image|audio|video|file|screenshot|media|inline_?data|blob", re.IGNORECASE)

Media = bytes
"""The JSON of an image, a file or a screenshot, with its bytes, URL or id."""

Part = str | Media | list[Any] | dict[str, Any] | float | None


def parts_of(content: Any) -> Iterator[Part]:
    """Yield the parts of a content of any shape: a text, an object, or a list of parts."""
    if isinstance(content, list):
        for part in content:
            yield from _part(part)
    elif isinstance(content, dict) and str(content.get(OWN_KEY)).startswith(MARKER):
        yield {key: value for key, value in content.items() if key != OWN_KEY}
    elif isinstance(content, str):
        yield strip_additions(content)
    else:
        yield content


def _part(part: Any) -> Iterator[Part]:
    """Yield a part of a list, unless none of it comes from the tool."""
    text = _text(part)
    if text is None:
        yield dumps(_without_cache_control(part)) if is_media(part) else _without_cache_control(part)
    elif (left := strip_additions(text)) or not text:
        yield left


def _text(part: Any) -> str | None:
    """Return the text of a part that is only a text; None for others, such as objects with further keys."""
    if isinstance(part, dict) and (part.get("type") in _TEXT_TYPES or len(part) == 1):
        part = part.get("text")
    return part if isinstance(part, str) else None


def is_media(part: Any) -> bool:
    """Whether the type of a part, or its first key if it has no type, names a medium."""
    if not isinstance(part, dict) or not part:
        return False
    kind = part.get("type") or next(iter(part))
    if kind == "document":  # Cohere's is a text or a value; Anthropic's and Bedrock's have a source
        inner = part.get("document")
        return "source" in part or (isinstance(inner, dict) and "source" in inner)
    return bool(_MEDIA.search(str(kind)))


def _without_cache_control(part: Any) -> Any:
    return {key: value for key, value in part.items() if key != "cache_control"} if isinstance(part, dict) else part
