"""Reads the start of an app's answer: whether the answer can be guarded, and in what form its body comes."""

from collections.abc import Callable
from typing import Final, NamedTuple

from callfuse.asgi.types import Message
from callfuse.wire import Format

START: Final = "http.response.start"
BODY: Final = "http.response.body"

StreamFormat = Callable[[bytes], Format | None]
"""The format in which an answer of this content type is streamed; None if it is not, or callfuse cannot read it."""


class Shape(NamedTuple):
    """The form of an answer. `stream`: the format of a streamed one; None for a whole body. `unreadable`: why the
    answer can be neither guarded nor watched; empty if it can."""

    stream: Format | None = None
    unreadable: str = ""


WHOLE: Final = Shape()
_ENCODED: Final = Shape(unreadable="content-encoding")
_FOREIGN: Final = Shape(unreadable="content-type")
_PLAIN: Final = (b"", b"identity")


def is_success(message: Message) -> bool:
    """Whether the status is 2xx; errors are not guarded."""
    return 200 <= int(message["status"]) < 300


def shape_of(message: Message, stream_format: StreamFormat) -> Shape:
    """The form of an answer by its headers; the last of repeated ones counts. Replaces an iterable of headers by a
    list."""
    content_type = encoding = b""
    given = message.get("headers") or ()
    if not isinstance(given, list | tuple):  # ASGI allows an iterable that can be read once only
        message["headers"] = given = list(given)
    for raw_name, value in given:
        name = raw_name.lower()
        if name == b"content-type":
            content_type = value.lower()
        elif name == b"content-encoding":
            encoding = value
    if encoding.strip().lower() not in _PLAIN:
        return _ENCODED
    if stream := stream_format(content_type):
        return Shape(stream)
    is_json = content_type.partition(b";")[0].strip().endswith((b"/json", b"+json"))
    return WHOLE if is_json else _FOREIGN
