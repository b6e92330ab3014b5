"""The `Format` of AWS event streams (`application/vnd.amazon.eventstream`), as Bedrock sends them.

A frame is one message: its length and that of its headers, a CRC of these two, the headers (name, type, value), the
payload, and a CRC of all before it. Numbers are big-endian, CRCs are those of zlib. Only the length says where a
message ends, so a broken length or CRC ends the framing; the SDKs raise an error there.
https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html

`AWS_EVENTS` reads events whose content is a JSON object; a frame's payload is `{type: object}`.
`AWS_CHUNKS` reads `chunk` events that carry a JSON object of another vendor format in base64.
"""

from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64, crc32
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from callfuse.memo import remembered
from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import Edit, NotFramed, NotJSON, UnreadableJSON, apply, dumps, loads, spans
from callfuse.wire.values import MOST_VALUES, has_too_many_values

MEDIA_TYPE: Final = b"application/vnd.amazon.eventstream"
EXCEPTION: Final = ":exception"
"""The key of the payload of any exception or error, whatever its type."""
_PRELUDE: Final = Struct("!III")
_NUMBER: Final = Struct("!I")
_AROUND: Final = _PRELUDE.size + _NUMBER.size
"""The number of bytes of a message around its headers and its payload."""
_MOST_HEADERS: Final = 128 * 1024
_MOST_PAYLOAD: Final = 24 * 1024 * 1024
"""The most bytes of headers and of a payload that botocore accepts."""
_MOST_CARRIED: Final = 4 * 1024 * 1024
"""The most bytes of a payload whose content is read. Unpacking and parsing that many takes 50 ms; Bedrock's chunks have
a few hundred bytes."""
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value, by its type; types 6 (bytes) and 7 (text) have their length in front."""
_SHORT: Final = 128
"""The most bytes of headers whose type is memoized; Bedrock's have about 90."""
_BYTES: Final = 6
_TEXT: Final = 7


def is_begin(text: bytes) -> bool | None:
    """Whether a body with this beginning is an event stream; None if more bytes are needed to tell."""
    if len(text) >= _PRELUDE.size:
        return _size_at(text, 0) > 0
    return None if not text or text[0] <= _MOST_PAYLOAD >> 24 else False


def message(kind: str, payload: bytes) -> bytes:
    """Write an event of this type with a JSON payload."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return _message(_headers(named), payload)


def exception(kind: str, payload: bytes) -> bytes:
    """Write an exception of this type with a JSON payload."""
    named = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return _message(_headers(named), payload)


def event(payload: Payload) -> bytes:
    """Write an event from a payload as `AWS_EVENTS` reads it, with the event's type as the only key."""
    ((kind, said),) = payload.items()
    return message(kind, dumps(said))


def chunk(text: bytes) -> bytes:
    """Write a `chunk` event that carries this JSON text, as `AWS_CHUNKS` reads it."""
    return message("chunk", dumps({"bytes": b2a_base64(text, newline=False).decode()}))


class AWSEventFramer:
    """Splits one stream into messages. `empty`: nothing is buffered. `waiting`: the number of bytes of an incomplete
    message. `broken`: after a broken prelude, all bytes pass as they come.
    """

    __slots__ = ("_buffer", "broken", "empty", "waiting")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.broken = False
        self.empty = True
        self.waiting = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the messages that it completes."""
        if self.empty and chunk and _size_at(chunk, 0) == len(chunk) and not self.broken:  # most chunks are one
            return [chunk]
        self._buffer += chunk
        frames: list[bytes] = []
        begin = 0
        while end := self._end_of_frame(begin):
            frames.append(bytes(self._buffer[begin:end]))
            begin = end
        del self._buffer[:begin]
        self.waiting = len(self._buffer)
        self.empty = not self.waiting
        return frames

    def _end_of_frame(self, begin: int) -> int:
        """Return the end of the message that begins here; 0 if it is not complete."""
        there = len(self._buffer)
        if self.broken:
            return there if there > begin else 0
        if there - begin < _PRELUDE.size:
            return 0
        size = _size_at(self._buffer, begin)
        if not size:  # the broken prelude is one frame, however the stream is chunked
            self.broken, size = True, _PRELUDE.size
        return begin + size if begin + size <= there else 0

    def flush(self) -> bytes:
        """Return the buffered bytes (the beginning of a message) and clear the buffer."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self.empty, self.waiting = True, 0
        return rest


class _EventMessage(NamedTuple):
    """A message: the bytes of its headers, its type (empty if it has none) and its payload."""

    headers: bytes
    kind: str
    payload: bytes


class AWSEvents:
    """Frames are messages; the payload is `{type: JSON value}`, with the type `EXCEPTION` for anything but an event."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = False

    def framer(self) -> Framer:
        """Make a splitter for one stream."""
        return AWSEventFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse a message; return None if it names no type. Raises NotFramed if a length or a CRC is wrong, and NotJSON
        if the message is cut off, or if its payload is not JSON or has too many values."""
        read = _read(frame)
        return {read.kind: _parsed(read.payload or b"{}")} if read.kind else None

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of the payload; `{}` if the message names no type."""
        read = _read(frame)
        return b"{" + dumps(read.kind) + b":" + (read.payload or b"{}") + b"}" if read.kind else b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the message with its payload replaced; its headers, and so its type, stay."""
        said = next(spans(text), None)
        return _message(_read(frame).headers, text[said.value : said.end] if said else text)


class AWSChunks:
    """Frames are messages; the payload is the JSON object within a `chunk` event, or `{EXCEPTION: object}`."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = False

    def framer(self) -> Framer:
        """Make a splitter for one stream."""
        return AWSEventFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse what a chunk carries; return None for other events. Raises as `AWSEvents.payload` does, and NotJSON if
        the chunk carries no object."""
        read = _read(frame)
        if read.kind == EXCEPTION:
            return {read.kind: _parsed(read.payload or b"{}")}
        return _object(_carried(read.payload)) if read.kind == "chunk" else None

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text that a chunk carries; `{}` for other events."""
        read = _read(frame)
        if read.kind == EXCEPTION:
            return b"{" + dumps(read.kind) + b":" + (read.payload or b"{}") + b"}"
        return _carried(read.payload) if read.kind == "chunk" else b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the message with another JSON text in its chunk; its headers and other fields stay."""
        read = _read(frame)
        if read.kind != "chunk":
            return AWS_EVENTS.with_text(frame, text)
        encoded = b'"' + b2a_base64(text, newline=False) + b'"'
        return _message(read.headers, apply(read.payload, [Edit(("bytes",), encoded)]))


def _size_at(text: bytes | bytearray, begin: int) -> int:
    """Return the size of the message that begins here; 0 if there is no valid prelude."""
    if len(text) - begin < _PRELUDE.size:
        return 0
    size, headers, checksum = _PRELUDE.unpack_from(text, begin)
    if headers > _MOST_HEADERS or not 0 <= size - headers - _AROUND <= _MOST_PAYLOAD:
        return 0
    return int(size) if crc32(text[begin : begin + 8]) == checksum else 0


def _read(frame: bytes) -> _EventMessage:
    """Split a message into headers, type and payload. Raises NotFramed, and NotJSON if the message is incomplete."""
    size = _size_at(frame, 0)
    if size > len(frame) or len(frame) < _PRELUDE.size:
        raise NotJSON("a message is cut off")
    if size != len(frame) or crc32(memoryview(frame)[:-4]) != _NUMBER.unpack_from(frame, size - 4)[0]:
        raise NotFramed("not an event-stream message, or a message with a wrong checksum")
    end = _PRELUDE.size + _NUMBER.unpack_from(frame, 4)[0]
    headers = frame[_PRELUDE.size : end]
    kind = _kind_of(headers)
    return _EventMessage(headers, kind, frame[end:-4])


@remembered(entries=32, longest=_SHORT)
def _kind_of(headers: bytes) -> str:
    """Return the type of a message from its headers; empty if they name none. Raises NotFramed if they are broken.

    The events of one type have the same headers. Reading them takes 1.5 us.
    """
    texts = _texts_in(headers)
    says = texts.get(b":message-type", b"")
    if says != b"event":
        return EXCEPTION if says in (b"exception", b"error") else ""
    return texts.get(b":event-type", b"").decode(errors="replace")


def _texts_in(headers: bytes) -> dict[bytes, bytes]:
    """Return those headers whose values are texts. Raises NotFramed if the headers are broken."""
    found: dict[bytes, bytes] = {}
    at, end = 0, len(headers)
    try:
        while at < end:
            name = headers[at + 1 : (at := at + 1 + headers[at])]
            kind = headers[at]
            if kind in (_BYTES, _TEXT):
                begin = at + 3
                at = begin + int.from_bytes(headers[at + 1 : begin])
                if kind == _TEXT:
                    found[name] = headers[begin:at]
            else:
                at += 1 + _SIZES[kind]
    except LookupError:
        at = -1
    if at != end:
        raise NotFramed("the headers of a message are broken")
    return found


def _carried(payload: bytes) -> bytes:
    """Return the bytes that a chunk carries. Raises NotJSON if the payload is broken or too long."""
    if len(payload) > _MOST_CARRIED:
        raise UnreadableJSON("a chunk is too long")
    found = _object(payload).get("bytes")
    try:
        return a2b_base64(found) if isinstance(found, str) and found else b"{}"
    except (NotBase64, ValueError) as error:
        raise NotJSON(str(error)) from None


def _object(text: bytes) -> Payload:
    """Parse a JSON object. Raises NotJSON."""
    value = _parsed(text)
    if not isinstance(value, dict):
        raise NotJSON("what a message carries is not an object")
    return value


def _parsed(text: bytes) -> Any:
    """Parse a JSON text. Raises NotJSON, also if it has too many values."""
    if len(text) > MOST_VALUES and has_too_many_values(text):
        raise NotJSON("too many values")
    return loads(text)


def _message(headers: bytes, payload: bytes) -> bytes:
    """Write a message."""
    lengths = _NUMBER.pack(_AROUND + len(headers) + len(payload)) + _NUMBER.pack(len(headers))
    begun = b"".join((lengths, _NUMBER.pack(crc32(lengths)), headers, payload))
    return begun + _NUMBER.pack(crc32(begun))


def _headers(named: Mapping[str, str]) -> bytes:
    """Write headers whose values are texts."""
    pairs = ((name.encode(), text.encode()) for name, text in named.items())
    return b"".join(_sized(name, 1) + bytes([_TEXT]) + _sized(text, 2) for name, text in pairs)


def _sized(text: bytes, size: int) -> bytes:
    return len(text).to_bytes(size) + text


AWS_EVENTS: Final = AWSEvents()
AWS_CHUNKS: Final = AWSChunks()
HEARTBEAT: Final = message("callfuse-keep-alive", b"{}")
"""An event of a type that no service has; the SDKs ignore it."""
