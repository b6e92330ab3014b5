"""Nudges: user messages that a harness adds to the results of tools, turn after turn.

`Continue.`, `Step 3/50`, a state as JSON, a screenshot: no person typed them, so they do not begin a timeline. A nudge
follows results, without an answer in between. It is recognised by its words (`harness.is_nudge`), or because it equals
the message after the results before, except for numbers, states and images. Any other text after results is a person's.

Media after results, whoever added them, belong to the last result: a click that returns `ok` has changed the screen.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final

from callfuse.dialects.continued import Nudges
from callfuse.harness import is_automatic, is_nudge
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.outcomes.parts import is_media
from callfuse.wire.jsontext import NotJSON, loads

_LONGEST: Final = 2000
"""The most characters of a text in which numbers and states do not matter."""
_BEHIND_RESULTS: Final = b"behind results"
"""Makes the digest of a message after results differ from that of an equal message elsewhere."""
_LONGEST_STATE: Final = 500
_STATE: Final = re.compile(rb"\b((?:state|status)\b\W{1,4})[\w-]++", re.IGNORECASE)


class Speaker(Enum):
    """Who wrote a message, for the search for nudges."""

    MODEL = auto()
    TOOL = auto()
    """The message has a result."""
    USER = auto()
    """A user wrote the message, and it is not a reminder."""


Messages = Iterable[tuple[Speaker, int, Any]]
"""A history from the front: each message's speaker, its position, and a user's content without results."""


def find_nudges(messages: Messages, known: Nudges) -> Nudges:
    """Find the nudges of a history in one walk. `known`: those before the answer with which these messages begin."""
    end, before = known.end, known.before
    added = {at for at in known.added if at < end}
    digests = {at: digest for at, digest in known.digests.items() if at < end}
    said: set[bytes] = set()
    is_behind_results = False
    for speaker, position, content in messages:
        if speaker is Speaker.MODEL:
            end, before, said = position, said or before, set()
            is_behind_results = False
        elif speaker is Speaker.TOOL:
            is_behind_results = True
        elif is_behind_results:
            texts = _texts(content)
            parts = [_BEHIND_RESULTS, *dict.fromkeys(map(_without_state, texts))]
            digest = digests[position] = blake2b(b"\x00".join(parts), digest_size=16).digest()
            said.add(digest)
            if digest in before or _is_known(texts, shows=bool(media_of(content))):
                added.add(position)
    return Nudges(added, digests, end, before)


def _is_known(texts: Sequence[str], *, shows: bool) -> bool:
    """Whether the words of these texts show that no person wrote them. `shows`: there is an image beside them."""
    written = [text for text in texts if text and not text.isspace()]
    return (shows or bool(written)) and all(is_nudge(text, shows=shows) or _is_state(text) for text in written)


def _is_state(text: str) -> bool:
    """Whether a text is a short JSON object with only numbers and single words."""
    if len(text) > _LONGEST_STATE or not text.lstrip().startswith("{"):
        return False
    try:
        value = loads(text)
    except NotJSON:
        return False
    said = [*value.values()] if isinstance(value, dict) else []
    return bool(said) and all(
        _is_word(one) if isinstance(one, str) else not isinstance(one, list | dict) for one in said
    )


def _is_word(text: str) -> bool:
    return text.replace("_", "").replace("-", "").isalnum()


def media_of(content: Any) -> Sequence[Any]:
    """Return the images, files and the like in a message's content."""
    return [part for part in content if is_media(part)] if type(content) is list else ()


def with_media(content: Any, shown: Sequence[Any]) -> list[Any]:
    """Return the content of a result, with the media that follow it."""
    return [*content, *shown] if type(content) is list else [content, *shown]


def _texts(content: Any) -> list[str]:
    """Return the texts of a message's content, without a harness's reminders."""
    parts = content if type(content) is list else [content]
    found = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text for text in found if isinstance(text, str) and not is_automatic(text)]


def _without_state(text: str) -> bytes:
    if len(text) > _LONGEST:
        return text.encode("utf-8", "surrogatepass")
    return _STATE.sub(rb"\1=", normalise(text))
