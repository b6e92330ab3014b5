"""How an answer comes: as a stream in some format, whole, or in a way that callfuse cannot read."""

from typing import NamedTuple

from callfuse.asgi import headers
from callfuse.asgi.types import Message
from callfuse.dialects.base import Dialect, Request
from callfuse.framing import Format


class Shape(NamedTuple):
    """`stream` is the format of a streamed answer; `unreadable` says why an answer can be neither held nor watched."""

    stream: Format | None = None
    unreadable: str = ""


def is_success(message: Message) -> bool:
    """Whether the answer is one: errors are not guarded."""
    return 200 <= int(message["status"]) < 300


def shape_of(message: Message, dialect: Dialect, request: Request) -> Shape:
    """How an answer comes, by its headers."""
    found = headers.read(message)
    if not headers.is_readable(found):
        return Shape(unreadable="content-encoding")
    content_type = found.get(b"content-type", b"").lower()
    if stream := dialect.stream_format(content_type, request):
        return Shape(stream)
    is_json = content_type.partition(b";")[0].strip().endswith((b"/json", b"+json"))
    return Shape() if is_json else Shape(unreadable="content-type")
