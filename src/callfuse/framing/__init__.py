"""Bytes in any chunking become frames that keep their raw bytes: joined again they are the bytes that came in."""

from callfuse.framing.events import CRLF_EVENTS, EVENTS
from callfuse.framing.format import Format, Framer, Payload
from callfuse.framing.json_array import JSON_ARRAY, placed
from callfuse.framing.sse import BOM, SSEFramer

__all__ = ["BOM", "CRLF_EVENTS", "EVENTS", "JSON_ARRAY", "Format", "Framer", "Payload", "SSEFramer", "placed"]
