"""The shape of an answer, by its status and headers."""

from functools import partial

import pytest

from callfuse.asgi.answer import Shape, is_success, shape_of
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
        (b"", b"", OTHER),
        (b"text/event-stream", b"gzip", ENCODED),
        (b"application/json", b"br", ENCODED),
        (b"application/json", b"identity, zstd", ENCODED),
    ],
)
def test_how_an_answer_comes(kit: DialectKit, kind: bytes, encoding: bytes, shape: Shape) -> None:
    """Streamed, whole, or in a way that cannot be read."""
    given = [(b"Content-Type", kind)] if kind else []
    given += [(b"Content-Encoding", encoding)] if encoding else []
    made = scene(kit)
    start = {"type": "http.response.start", "status": 200, "headers": given}
    assert shape_of(start, partial(made.dialect.stream_format, request=made.request)) == shape


@pytest.mark.parametrize(
    ("status", "good"), [(199, False), (200, True), (204, True), (299, True), (300, False), (500, False)]
)
def test_which_answers_are_guarded(status: int, good: bool) -> None:
    """Errors are not."""
    assert is_success({"status": status}) is good
