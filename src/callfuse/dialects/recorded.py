"""Recognising what is recorded of a dialect, where no path names it: request bodies, bare histories, whole answers.

A bare history is the list of messages that stands in a request's body under one key.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from callfuse.wire import Payload


class Recorded(NamedTuple):
    """A recorded value as its dialect reads it: the body of a request (which a bare history is put into), or a whole
    answer."""

    payload: Payload
    is_answer: bool = False


def body_in(value: Any, key: str, is_own: Callable[[Payload], bool], *, by_key: bool = False) -> Recorded | None:
    """A value with messages under `key`, or a bare list of them, of which at least one is the dialect's own. `by_key`:
    no other dialect has this key, so that a body needs no such message."""
    messages = value.get(key) if isinstance(value, dict) else value
    if not isinstance(messages, list):
        return None
    if not (by_key and messages is not value) and not any(isinstance(one, dict) and is_own(one) for one in messages):
        return None
    return Recorded(value if isinstance(value, dict) else {key: value})


def answer_in(value: Any, key: str, shape: type) -> Recorded | None:
    """A value that has something of this shape under `key`."""
    is_answer = isinstance(value, dict) and isinstance(value.get(key), shape)
    return Recorded(value, is_answer=True) if is_answer else None


def blocks_of(message: Payload) -> Iterator[Payload]:
    """The objects in a message's content."""
    content = message.get("content")
    return (block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict))
