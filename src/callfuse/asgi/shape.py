"""How an answer comes: as a stream in some format, whole, or in a way that callfuse cannot read."""

from typing import Final, NamedTuple

from callfuse.asgi.types import Message
from callfuse.dialects.base import Dialect, Request
from callfuse.wire import Format


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


def shape_of(message: Message, dialect: Dialect, request: Request) -> Shape:
    """How an answer comes, by its headers; of repeated ones the last counts."""
    content_type = encoding = b""
    for raw_name, value in message.get("headers") or ():
        name = raw_name.lower()
        if name == b"content-type":
            content_type = value.lower()
        elif name == b"content-encoding":
            encoding = value
    if encoding.strip().lower() not in _PLAIN:
        return _ENCODED
    if stream := dialect.stream_format(content_type, request):
        return Shape(stream)
    is_json = content_type.partition(b";")[0].strip().endswith((b"/json", b"+json"))
    return WHOLE if is_json else _FOREIGN
