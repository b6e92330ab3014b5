"""Bytes on the wire: cutting them, and reading server-sent events a second way.

In: bytes. Out: chunks, events, positions. The reader follows the WHATWG rules on a whole body and shares no code
with the product; an event that lacks its blank line at the end is still read, because SDKs and vendors differ
there.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

_LINE_END = re.compile(rb"\r\n|\n|\r")
_FRAME = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+\Z", re.DOTALL)
_LINE = re.compile(rb"[^\n]*\n|.+\Z", re.DOTALL)
_ALIVE = b"\r\n\r\n"
_DECODER = json.JSONDecoder()
_SILENT = re.compile(rb'"message": ?\{"role": ?"assistant", ?"content": ?""(?:, ?"images": ?null)?\}, ?"done": ?false')
"""A line of Ollama's without content, thinking or call."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its name and its data."""

    name: str
    data: str


def events(body: bytes) -> list[Event]:
    """The events of a whole body, comments left out."""
    found: list[Event] = []
    name = ""
    data: list[str] = []
    for line in [*_LINE_END.split(body.removeprefix(b"\xef\xbb\xbf")), b""]:
        key, _, value = line.decode().partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            found.append(Event(name, "\n".join(data)))
        if not line:
            name, data = "", []
        elif key == "event":
            name = value
        elif key == "data":
            data.append(value)
    return found


def frames(body: bytes) -> list[bytes]:
    """The body cut behind each blank line, each line where it is NDJSON, each element of an array, each message of an
    AWS event stream; every byte kept."""
    if body.startswith(b"\0"):
        return list(_messages(body))
    if body.lstrip().startswith(b"["):
        return _array(body)
    return [part for part in (_LINE if body.lstrip().startswith(b"{") else _FRAME).findall(body) if part]


def _messages(body: bytes) -> Iterator[bytes]:
    """The messages of an AWS event stream: each begins with its length."""
    while body:
        end = int.from_bytes(body[:4])
        yield body[:end]
        body = body[end:] if end else b""


def with_payloads(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """An AWS event stream whose payloads are changed, with the lengths and checksums that they need then."""
    found: list[bytes] = []
    for frame in _messages(body):
        size = int.from_bytes(frame[4:8])
        payload = change(frame[12 + size : -4])
        lengths = (16 + size + len(payload)).to_bytes(4) + frame[4:8]
        begun = lengths + crc32(lengths).to_bytes(4) + frame[12 : 12 + size] + payload
        found.append(begun + crc32(begun).to_bytes(4))
    return b"".join(found)


def _array(body: bytes) -> list[bytes]:
    """The elements of an array, each with what stands before it; four line ends are a keep-alive."""
    found: list[bytes] = []
    start = position = 0
    while position < len(body):
        if position == start and body.startswith(_ALIVE, position):
            start = position = position + len(_ALIVE)
            found.append(_ALIVE)
            continue
        end = position + 1
        if body[position:end] == b"{":
            end = _element_end(body, position)
        if body[position : position + 1] in b"{]":
            found.append(body[start:end])
            start = end
        position = end
    return found + ([body[start:]] if start < len(body) else [])


def _element_end(body: bytes, start: int) -> int:
    """Where the object that begins here ends; the body's end where it does not."""
    try:
        text = body[start:].decode()
        return start + len(text[: _DECODER.raw_decode(text)[1]].encode())
    except ValueError:
        return len(body)


def elements(body: bytes) -> list[bytes]:
    """The elements of an array without what stands between them."""
    return [part.lstrip(b" \t\r\n[,") for part in frames(body) if part.endswith(b"}")]


def is_noise(frame: bytes) -> bool:
    """Whether a frame only keeps the connection alive: nothing but comments, a ping, or a line that says nothing."""
    if frame.startswith(b"\0"):
        return b"callfuse-keep-alive" in frame
    if frame.startswith(b"{"):
        return _SILENT.search(frame) is not None
    lines = [line for line in _LINE_END.split(frame) if line]
    ping = any(line.replace(b" ", b"") == b"event:ping" for line in lines)
    return ping or all(line.startswith(b":") for line in lines)


def quiet(body: bytes) -> bytes:
    """A body without its keep-alives."""
    return b"".join(frame for frame in frames(body) if not is_noise(frame))


def cut(body: bytes, places: Iterable[int]) -> tuple[bytes, ...]:
    """A body cut at these places; a place given twice leaves an empty chunk, as some apps send."""
    edges = [0, *sorted(min(place, len(body)) for place in places), len(body)]
    return tuple(body[start:end] for start, end in pairwise(edges))


def bytewise(body: bytes) -> tuple[bytes, ...]:
    """A body byte by byte."""
    return tuple(body[at : at + 1] for at in range(len(body)))


def is_insertion(original: bytes, changed: bytes) -> bool:
    """Whether `changed` is `original` with one stretch put in and nothing else touched."""
    shorter = min(len(original), len(changed))
    front = next((at for at in range(shorter) if original[at] != changed[at]), shorter)
    back = next((at for at in range(shorter) if original[-1 - at] != changed[-1 - at]), shorter)
    return len(changed) > len(original) and front + back >= len(original)
