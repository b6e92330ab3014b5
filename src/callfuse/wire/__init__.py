"""Splits streams into frames and reads them as JSON. All frames joined are the bytes that came in, however chunked."""

from callfuse.wire.aws_events import AWS_CHUNKS, AWS_EVENTS
from callfuse.wire.events import CRLF_EVENTS, EVENTS
from callfuse.wire.format import Format, Framer, Payload
from callfuse.wire.json_array import JSON_ARRAY, with_separator
from callfuse.wire.jsontext import NotFramed
from callfuse.wire.sse import BOM, SSEFramer
from callfuse.wire.whole import WHOLE

__all__ = [
    "AWS_CHUNKS",
    "AWS_EVENTS",
    "BOM",
    "CRLF_EVENTS",
    "EVENTS",
    "JSON_ARRAY",
    "WHOLE",
    "Format",
    "Framer",
    "NotFramed",
    "Payload",
    "SSEFramer",
    "with_separator",
]
