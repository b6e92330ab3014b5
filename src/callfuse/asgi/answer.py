"""The start of an answer of the app: is it one to be guarded, and how does its body come?"""

from collections.abc import Callable
from typing import Final, NamedTuple

from callfuse.asgi.types import Message
from callfuse.wire import Format

START: Final = "http.response.start"
BODY: Final = "http.response.body"

StreamFormat = Callable[[bytes], Format | None]
"""How an answer of this content type is streamed; None where it is not, or in a way that callfuse cannot read."""


class Shape(NamedTuple):
    """`stream` is the format of a streamed answer; `unreadable` says why an answer can be neither held nor watched."""

    stream: Format | None = None
    unreadable: str = ""


WHOLE: Final = Shape()
_ENCODED: Final = Shape(unreadable="content-encoding")
_FOREIGN: Final = Shape(unreadable="content-type")
_PLAIN: Final = (b"", b"identity")


def is_success(message: Message) -> bool:
    """Whether the answer is one: errors are not guarded."""
    return 200 <= int(message["status"]) < 300


def shape_of(message: Message, stream_format: StreamFormat) -> Shape:
    """How an answer comes, by its headers; of repeated ones the last counts. The headers are a list afterwards."""
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
