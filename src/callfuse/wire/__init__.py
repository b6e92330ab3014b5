"""Bytes in any chunking become frames that keep their raw bytes: joined again they are the bytes that came in."""

from callfuse.wire.events import CRLF_EVENTS, EVENTS
from callfuse.wire.format import Format, Framer, Payload
from callfuse.wire.json_array import JSON_ARRAY, placed
from callfuse.wire.sse import BOM, SSEFramer
from callfuse.wire.whole import WHOLE

__all__ = ["BOM", "CRLF_EVENTS", "EVENTS", "JSON_ARRAY", "WHOLE", "Format", "Framer", "Payload", "SSEFramer", "placed"]
