"""The shape of an answer, by its status and headers."""

from functools import partial

import pytest

from callfuse.asgi.answer import UNDECLARED, Intake, Shape, is_success, shape_of
from callfuse.wire import EVENTS
from tests.guard.driving import each_kit, scene
from tests.support.kits import DialectKit

STREAM, WHOLE = Shape(EVENTS), Shape()
ENCODED, OTHER = Shape(unreadable="content-encoding"), Shape(unreadable="content-type")


@each_kit
@pytest.mark.parametrize(
    ("kind", "encoding", "shape"),
    [
        (b"text/event-stream", b"", STREAM),
        (b"text/event-stream; charset=utf-8", b"identity", STREAM),
        (b"Text/Event-Stream", b" Identity ", STREAM),
        (b"application/json", b"", WHOLE),
        (b"application/json; charset=utf-8", b"", WHOLE),
        (b"application/vnd.x+json", b"", WHOLE),
        (b"text/html", b"", OTHER),
        (b"", b"", UNDECLARED),
        (b"text/event-stream", b"gzip", STREAM),
        (b"application/json", b"GZIP, identity", WHOLE),
        (b"text/html", b"gzip", OTHER),
        (b"", b"gzip", UNDECLARED),
        (b"text/event-stream", b"compress", ENCODED),
        (b"application/json", b"gzip, nonsense", ENCODED),
    ],
)
def test_how_an_answer_comes(kit: DialectKit, kind: bytes, encoding: bytes, shape: Shape) -> None:
    """Streamed, whole, or in a way that cannot be read."""
    given = [(b"Content-Type", kind)] if kind else []
    given += [(b"Content-Encoding", encoding)] if encoding else []
    made = scene(kit)
    start = {"type": "http.response.start", "status": 200, "headers": given}
    assert shape_of(start, partial(made.dialect.stream_format, asked=made.request.stream)) == shape


@pytest.mark.parametrize(
    ("status", "good"), [(199, False), (200, True), (204, True), (299, True), (300, False), (500, False)]
)
def test_which_answers_are_guarded(status: int, good: bool) -> None:
    """Errors are not."""
    assert is_success({"status": status}) is good


EVENT_BYTES = [b"data: {}", b"event: x", b": ready", b"id: 1", b"retry: 5", b"\xef\xbb\xbfdata:", b"\n\ndata:"]


@each_kit
@pytest.mark.parametrize(
    ("begin", "shape"),
    [
        *[(begin, STREAM) for begin in EVENT_BYTES],
        (b'{"a": 1}', WHOLE),
        (b"\n \t{", WHOLE),
        (b"<html>", OTHER),
        (b"\x00\x00\x00\x8e", OTHER),
        (b"datum", OTHER),
        (b"\x1f\x8b", OTHER),
        (b" " * 5000, OTHER),
        (b"", OTHER),
        (b"da", OTHER),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 9999])
def test_the_first_bytes_tell(kit: DialectKit, begin: bytes, shape: Shape, step: int) -> None:
    """Where the headers say nothing: however they come, with no byte more than it takes, and none is lost."""
    made = scene(kit)
    start = {"type": "http.response.start", "status": 200, "headers": []}
    intake = Intake(start, partial(made.dialect.stream_format, asked=made.request.stream))
    told, at = b"", 0
    while intake.shape is UNDECLARED:
        chunk = begin[at : at + step]
        at += step
        told = intake.detect_shape(intake.plain(chunk, final=at >= len(begin)), final=at >= len(begin))
    assert intake.shape == shape
    assert told == begin[:at]
    if shape == STREAM and step == 1:
        field = begin.index(b":")
        assert at <= field + 1
