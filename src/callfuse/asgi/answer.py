"""Read an app's answer as it arrives: whether it can be guarded, the form of its body, and its plain bytes."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from callfuse.asgi.codings import Unpacker, UnreadableBodyError, unpacker_of
from callfuse.asgi.headers import BODY_BOUND, read, without
from callfuse.asgi.types import Message
from callfuse.wire import BOM, Format, aws_events

START: Final = "http.response.start"
BODY: Final = "http.response.body"

StreamFormat = Callable[[bytes], Format | None]
"""Returns the stream format of an answer's content type; None if it is not a stream, or callfuse cannot read it."""


class Shape(NamedTuple):
    """The form of an answer. `stream`: the format of a streamed answer; None for a whole body. `unreadable`: why the
    answer can be neither guarded nor watched; empty if it can."""

    stream: Format | None = None
    unreadable: str = ""


WHOLE: Final = Shape()
UNDECLARED: Final = Shape(unreadable="no content-type")
"""The headers name no content type. The first bytes of the body show the form."""
_ENCODED: Final = Shape(unreadable="content-encoding")
_FOREIGN: Final = Shape(unreadable="content-type")
_EVENTS: Final = b"text/event-stream"
_JSON: Final = b"application/json"
_FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")
"""The beginnings of lines in server-sent events."""
_BLANKS: Final = b" \t\r\n"
_MOST_BLANKS: Final = 4096
"""The most blanks before the first byte that shows the form. Some gateways send them to keep a connection open."""


def is_success(message: Message) -> bool:
    """Whether the status is 2xx; errors are not guarded."""
    return 200 <= int(message["status"]) < 300


def split_blanks(body: bytes) -> tuple[bytes, bytes]:
    """Split a whole answer into leading white space, which gateways send to keep a connection open, and the rest."""
    rest = body.lstrip(_BLANKS) if type(body) is bytes else body  # apps send other types, too
    return body[: len(body) - len(rest)], rest


def shape_of(message: Message, stream_format: StreamFormat) -> Shape:
    """Return the form of an answer by its headers, after removal of its content codings. Of repeated content types, the
    last one counts. Replaces an iterable of headers by a list."""
    content_type, encoding = describe(message)
    try:
        if encoding:
            unpacker_of(encoding)
    except UnreadableBodyError:
        return _ENCODED
    return _shape_of_type(content_type, stream_format) if content_type else UNDECLARED


def describe(message: Message) -> tuple[bytes, str]:
    """Return the content type (lower case) and content encoding (empty for plain bytes) of an answer. Replaces an
    iterable of headers by a list."""
    content_type = encoding = b""
    given = message.get("headers") or ()
    if not isinstance(given, list | tuple):  # ASGI allows an iterable that is readable only once
        message["headers"] = given = list(given)
    for raw_name, value in given:
        name = raw_name.lower()
        if name == b"content-type":
            content_type = value.strip().lower()
        elif name == b"content-encoding":
            encoding += b"," + value.strip().lower()  # each repeated header adds a coding
    codings = encoding.decode("latin-1").removeprefix(",")
    return content_type, "" if codings == "identity" else codings


def _shape_of_type(content_type: bytes, stream_format: StreamFormat) -> Shape:
    if stream := stream_format(content_type):
        return Shape(stream)
    is_json = content_type.partition(b";")[0].strip().endswith((b"/json", b"+json"))
    return WHOLE if is_json else _FOREIGN


def _shape_by(begin: bytes, stream_format: StreamFormat) -> Shape:
    """Return the form of an answer by its first bytes; `UNDECLARED` if these do not show the form yet."""
    binary = aws_events.is_begin(begin)
    if binary:
        return _shape_of_type(aws_events.MEDIA_TYPE, stream_format)
    text = begin.removeprefix(BOM).lstrip()
    if not text or BOM.startswith(begin):
        return UNDECLARED if len(begin) <= _MOST_BLANKS else _FOREIGN
    if text[:1] in (b"{", b"["):
        return _shape_of_type(_JSON, stream_format)
    if text.startswith(_FIELDS):
        return _shape_of_type(_EVENTS, stream_format)
    may_tell = binary is None or any(field.startswith(text) for field in _FIELDS)
    return UNDECLARED if may_tell else _FOREIGN


class Intake:
    """Reads the body of one answer as plain bytes.

    `shape`: the body's form, `UNDECLARED` until it is known; `delayed`: messages that wait for the form; `led`: the
    number of blanks that were sent already. `packed`: the body has a content coding; `spoiled`: the coding is broken.
    `raw`: the body is only read, and its messages pass unchanged. `direct`: a plain stream that is not `raw`. `begin`:
    the first chunk, if it was sent unread. `has_length`: the start declares a length; `waits_for_body`: the body is not
    a stream, and the start has headers that depend on it.

    `streamed`: the client asked for a stream. Then the first bytes show whether declared JSON is a stream anyway.
    """

    __slots__ = (
        "_begin",
        "_otherwise",
        "_stream_format",
        "_unpacker",
        "begin",
        "delayed",
        "direct",
        "has_length",
        "led",
        "packed",
        "raw",
        "shape",
        "spoiled",
        "waits_for_body",
    )

    def __init__(self, start: Message, stream_format: StreamFormat, *, streamed: bool = False) -> None:
        self.shape = shape_of(start, stream_format)
        self._otherwise = _FOREIGN
        if streamed and self.shape == WHOLE:
            self.shape, self._otherwise = UNDECLARED, WHOLE
        self.spoiled = False
        self.led = 0
        self.raw = self.direct = False
        self.begin = b""
        names = read(start)
        self.has_length = b"content-length" in names
        self.waits_for_body = self.shape.stream is None and not BODY_BOUND.isdisjoint(names)
        self.delayed: list[Message] = []
        self._stream_format = stream_format
        self._begin = b""
        _, encoding = describe(start)
        self.packed = bool(encoding) and self.shape != _ENCODED
        self._unpacker: Unpacker | None = unpacker_of(encoding) if self.packed else None

    @property
    def may_be_whole(self) -> bool:
        """Whether the headers declare JSON, not a stream."""
        return WHOLE in (self.shape, self._otherwise)

    def plain_of(self, message: Message) -> Iterator[bytes]:
        """Yield the plain bytes of a message."""
        return self.plain(message.get("body") or b"", final=not message.get("more_body", False))

    def plain(self, chunk: bytes, *, final: bool) -> Iterator[bytes]:
        """Yield the plain bytes of a chunk, in pieces. Raises UnreadableBodyError if they are broken, or cut off."""
        if self._unpacker is None:
            yield chunk
            return
        yield from self._unpacker.feed(chunk)
        if final:
            self._unpacker.finish()

    def detect_shape(self, pieces: Iterator[bytes], *, final: bool) -> bytes:
        """Take plain bytes until they show the form (`final`: no more will come). Returns all of them then, else
        nothing."""
        try:
            for piece in pieces:
                self._begin += piece
                self.shape = _shape_by(self._begin, self._stream_format)
                if self.shape is not UNDECLARED:
                    break
            else:
                self.shape = _FOREIGN if final else UNDECLARED
            if self.shape is _FOREIGN:
                self.shape = self._otherwise
        except UnreadableBodyError:
            self.shape = _ENCODED
        begin = b""
        if self.shape is not UNDECLARED:
            begin, self._begin = self._begin, b""
        return begin

    def lead(self) -> bytes:
        """Return the leading white space that was not sent yet. It is valid in every form that may follow."""
        blanks, _ = split_blanks(self._begin)
        new, self.led = blanks[self.led :], len(blanks)
        return new

    def start(self, start: Message) -> Message:
        """Return the start to send with the plain bytes: unchanged, or without headers that describe packed bytes."""
        if not self.packed:
            return start
        return {**start, "headers": without(start.get("headers") or (), BODY_BOUND | {b"content-encoding"})}
