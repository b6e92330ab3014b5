"""One byte, or a few, a million times: whatever a stream is full of, framers and readers do work in proportion to it.

In: a format, a pattern. Out: the calls that it takes to split a stream of the pattern and to read its frames.
"""

from contextlib import suppress
from functools import partial
from itertools import product

import pytest

from callfuse.wire import AWS_EVENTS, EVENTS, JSON_ARRAY, WHOLE, Format
from callfuse.wire.jsontext import NotJSON
from callfuse.wire.ndjson import NDJSON
from tests.support.work import calls_made

SIZE = 300
MOST = 16
"""Calls for each byte: a frame may have two, and each is parsed."""
GROWTH = 2.3
PIECES = (
    b"\r\r\n",
    b"data:\n",
    b"data: {\n\n",
    b": c\n\n",
    b'"\\',
    b'{"',
    b"[{",
    b"{}",
    b",{}",
    b"\n}",
    b"\n{",
    b"\n {\n",
)
PATTERNS = [*(bytes([byte]) for byte in range(256)), *PIECES]
FORMATS: dict[str, Format] = {"events": EVENTS, "lines": NDJSON, "array": JSON_ARRAY, "aws": AWS_EVENTS, "whole": WHOLE}


def read(form: Format, body: bytes, size: int) -> None:
    """Split a stream that comes in chunks of one size, and parse its frames."""
    framer = form.framer()
    frames = [frame for at in range(0, len(body), size) for frame in framer.feed(body[at : at + size])]
    frames.append(framer.flush())
    assert b"".join(frames) == body
    for frame in frames:
        with suppress(NotJSON):
            form.payload(frame)


def full_of(begin: bytes, pattern: bytes, size: int) -> bytes:
    """A stream of so many bytes."""
    return begin + (pattern * (size // len(pattern) + 1))[:size]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_work_grows_with_the_bytes(name: str) -> None:
    """Of each byte value and short patterns, in one chunk and in small ones: linear, and a few calls a byte."""
    form = FORMATS[name]
    found = []
    for begin, pattern in product((b"", b"\r", b"data: ", b"["), PATTERNS):
        small, large = full_of(begin, pattern, SIZE), full_of(begin, pattern, 2 * SIZE)
        for size in (SIZE * 3, 100):
            first, twice = (calls_made(partial(read, form, body, size)) for body in (small, large))
            if twice > MOST * 2 * SIZE or twice > GROWTH * first + 20:
                found.append((begin, pattern, size, first, twice))
    assert not found
