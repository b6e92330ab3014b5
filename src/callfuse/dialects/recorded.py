"""Helps dialects recognise recorded values without a path: request bodies, bare histories, whole answers.

A bare history is the list of messages of a request without the body around it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from callfuse.wire import Payload


class Recorded(NamedTuple):
    """A recorded value as its dialect reads it: a request's body (built around a bare history), or a whole answer."""

    payload: Payload
    is_answer: bool = False


def body_in(value: Any, key: str, is_own: Callable[[Payload], bool], *, by_key: bool = False) -> Recorded | None:
    """Return a body with messages under `key`, also for a bare list of messages, if at least one is the dialect's own;
    else None. `by_key`: only this dialect has the key, so a body needs no such message."""
    messages = value.get(key) if isinstance(value, dict) else value
    if not isinstance(messages, list):
        return None
    if not (by_key and messages is not value) and not any(isinstance(one, dict) and is_own(one) for one in messages):
        return None
    return Recorded(value if isinstance(value, dict) else {key: value})


def answer_in(value: Any, key: str, shape: type) -> Recorded | None:
    """Return a whole answer if the value has an object of this type under `key`, else None."""
    is_answer = isinstance(value, dict) and isinstance(value.get(key), shape)
    return Recorded(value, is_answer=True) if is_answer else None


def blocks_of(message: Payload) -> Iterator[Payload]:
    """Return the objects among a message's content blocks."""
    content = message.get("content")
    return (block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict))
