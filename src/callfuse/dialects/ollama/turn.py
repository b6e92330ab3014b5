"""The model's own turn, as an assistant message of the next request: content, thinking and calls as they came.

A part of a message that cannot be put together from its pieces raises AskError.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import AskError
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, span

_TEXTS: Final = ("content", "thinking")
_LISTS: Final = ("tool_calls", "images")


def turn(payloads: Sequence[Payload]) -> bytes:
    """The assistant message that the lines come to."""
    message: Payload = {"role": "assistant", "content": ""}
    for payload in payloads:
        for key, value in (payload.get("message") or {}).items():
            if value and key != "role":
                _add(message, key, value)
    return dumps(message)


def turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """The message of a whole answer, without the keys that say nothing."""
    place = span(body, ("message",))
    if place is None:
        raise AskError("message")
    empty = [
        Edit((key,), None) for key, value in payload["message"].items() if value in (None, [], "") and key != "content"
    ]
    return apply(body[place[0] : place[1]], empty)


def _add(message: Payload, key: str, value: Any) -> None:
    """Add one line's value to the message."""
    if key in _TEXTS and isinstance(value, str):
        message[key] = message.get(key, "") + value
    elif key in _LISTS and isinstance(value, list):
        message.setdefault(key, []).extend(value)
    else:
        raise AskError(f"message.{key}")
