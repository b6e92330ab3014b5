"""The NDJSON framer and format: bytes in any chunking become the same lines, joined they are the bytes that came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire.jsontext import NotJSON
from callfuse.wire.ndjson import NDJSON, NDJSONFramer
from tests.support.examples import more_examples
from tests.support.wire import bytewise, cut


def framed(*chunks: bytes) -> tuple[list[bytes], bytes]:
    """The lines of these chunks, and what is left."""
    framer = NDJSONFramer()
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    assert framer.empty == (framer.waiting == 0)
    rest = framer.flush()
    assert framer.empty
    assert framer.waiting == 0
    return frames, rest


CASES = [
    (b"", [], b""),
    (b"{}\n{}\n", [b"{}\n", b"{}\n"], b""),
    (b"{}\r\n{}\r\n", [b"{}\r\n", b"{}\r\n"], b""),
    (b"{}\n\n{}", [b"{}\n", b"\n"], b"{}"),
    (b"\n", [b"\n"], b""),
    (b"{}\r{}", [], b"{}\r{}"),
    ('{"a":"\u2028\u0085\x0b"}\n'.encode(), ['{"a":"\u2028\u0085\x0b"}\n'.encode()], b""),
]


@pytest.mark.parametrize(("body", "frames", "rest"), CASES)
def test_a_frame_ends_with_its_line_feed(body: bytes, frames: list[bytes], rest: bytes) -> None:
    """At nothing else, whole and byte by byte; what lacks its line feed is left over."""
    assert framed(body) == (frames, rest)
    assert framed(*bytewise(body)) == (frames, rest)
    assert framed(*frames, rest) == (frames, rest)


@more_examples(5)
@given(
    body=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"{}", b"x", "\u2028".encode()])).map(b"".join),
    places=st.lists(st.integers(0, 60), max_size=8),
)
def test_any_cuts_give_the_same_lines(body: bytes, places: list[int]) -> None:
    """And not one byte is lost or comes a chunk late."""
    frames, rest = framed(body)
    assert framed(*cut(body, places)) == (frames, rest)
    assert b"".join(frames) + rest == body
    assert all(frame.find(b"\n") == len(frame) - 1 for frame in frames)


@pytest.mark.parametrize(
    ("frame", "payload"),
    [
        (b'{"a":1}\n', {"a": 1}),
        (b' {"a":1} \r\n', {"a": 1}),
        (b'{"a":1}', {"a": 1}),
        (b"\n", None),
        (b" \r\n", None),
        (b'{"id":123456789012345678901234567890}\n', {"id": 123456789012345678901234567890}),
        (b'{"a":"\\ud800"}\n', {"a": "\ud800"}),
    ],
)
def test_a_line_is_read(frame: bytes, payload: object) -> None:
    """With every digit; a blank one has no payload."""
    assert NDJSON.payload(frame) == payload


@pytest.mark.parametrize("frame", [b"{\n", b"[1]\n", b"17\n", b"data: {}\n", b"\xff\n", b"1" * 30 + b"\n"])
def test_a_line_that_is_no_object_is_an_error(frame: bytes) -> None:
    """Whatever else it is."""
    with pytest.raises(NotJSON):
        NDJSON.payload(frame)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_another_payload_keeps_the_line_end(end: bytes) -> None:
    """All else in the line is the payload."""
    frame = b'{"a":1}' + end
    assert NDJSON.text(frame) == b'{"a":1}'
    assert NDJSON.with_text(frame, b'{"b":2}') == b'{"b":2}' + end
