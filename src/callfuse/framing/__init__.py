"""Bytes in any chunking become frames that keep their raw bytes: joined again they are the bytes that came in."""

from callfuse.framing.events import EVENTS
from callfuse.framing.format import Format, Framer, Payload
from callfuse.framing.sse import SSEFramer

__all__ = ["EVENTS", "Format", "Framer", "Payload", "SSEFramer"]
