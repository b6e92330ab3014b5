"""AWS binary event streams, as far as callfuse writes them.

A message: total and header length, a CRC of both, headers (name, type 7, value), the payload, a CRC of all of it.
https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
"""

from binascii import crc32
from typing import Final

from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

CONTENT_TYPE: Final = b"application/vnd.amazon.eventstream"
_STRING: Final = b"\x07"
_FRAME: Final = 16
"""Bytes of lengths and CRCs."""


def encoded(event: Payload) -> bytes:
    """An event, an object with its type as the only key, as a message."""
    ((kind, said),) = event.items()
    payload = dumps(said)
    pairs = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(_sized(name.encode(), 1) + _STRING + _sized(value.encode(), 2) for name, value in pairs.items())
    lengths = _number(_FRAME + len(headers) + len(payload)) + _number(len(headers))
    message = lengths + _number(crc32(lengths)) + headers + payload
    return message + _number(crc32(message))


def _sized(text: bytes, size: int) -> bytes:
    return len(text).to_bytes(size) + text


def _number(value: int) -> bytes:
    return value.to_bytes(4)
