"""The parts of a result's content: texts, values, and media as the bytes of their JSON.

Left out is what does not come from the tool: callfuse's own additions, the reminders that harnesses put behind a result
(Claude Code folds them into the last one of a message, and they change from turn to turn), and a part's mark that tells
a vendor to cache up to here, which clients move along.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from callfuse.harness import MARKER, OWN_KEY, strip_additions
from callfuse.wire.jsontext import dumps

_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_MEDIA = re.compile("image|audio|video|file|screenshot|media|inline_?data|blob", re.IGNORECASE)

Media = bytes
"""An image, a file or a screen, by its bytes, URL or id, as it stands."""

Part = str | Media | list[Any] | dict[str, Any] | float | None


def parts_of(content: Any) -> Iterator[Part]:
    """What a content of any shape consists of: a text, an object, or a list of parts."""
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
    """One part of a list, nothing where none of it is the tool's."""
    text = _text(part)
    if text is None:
        yield dumps(_without_caching(part)) if _is_media(part) else _without_caching(part)
    elif (left := strip_additions(text)) or not text:
        yield left


def _text(part: Any) -> str | None:
    """The text of a part that is nothing else; an object that has a text among other things is more than that."""
    if isinstance(part, dict) and (part.get("type") in _TEXT_TYPES or len(part) == 1):
        part = part.get("text")
    return part if isinstance(part, str) else None


def _is_media(part: Any) -> bool:
    """Whether a part is named for a medium, by its type or where it has none by its first key."""
    if not isinstance(part, dict) or not part:
        return False
    kind = part.get("type") or next(iter(part))
    if kind == "document":  # Cohere's is a text or a value; Anthropic's and Bedrock's have a source
        inner = part.get("document")
        return "source" in part or (isinstance(inner, dict) and "source" in inner)
    return bool(_MEDIA.search(str(kind)))


def _without_caching(part: Any) -> Any:
    return {key: value for key, value in part.items() if key != "cache_control"} if isinstance(part, dict) else part
