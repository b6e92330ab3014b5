"""The SSE framer: bytes in any chunking become the same frames, joined they are the bytes that came in."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.wire import SSEFramer, sse
from callfuse.wire.events import EVENTS
from callfuse.wire.jsontext import NotJSON, loads
from tests.support.examples import more_examples
from tests.support.wire import bytewise, cut


def framed(*chunks: bytes) -> tuple[list[bytes], bytes]:
    """The frames of these chunks, and what is left."""
    framer = SSEFramer()
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    assert framer.empty == (framer.waiting == 0)
    rest = framer.flush()
    assert framer.empty
    assert framer.waiting == 0
    return frames, rest


CASES = [
    (b"", [], b""),
    (b"data: a\n\ndata: b\n\n", [b"data: a\n\n", b"data: b\n\n"], b""),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"data: a\r\n\r\n", b"data: b\r\n\r\n"], b""),
    (b"data: a\r\rdata: b\r\r", [b"data: a\r\r", b"data: b\r\r"], b""),
    (b"data: a\r\n\ndata: b\n\n", [b"data: a\r\n\n", b"data: b\n\n"], b""),
    (b"data: a\n\n\ndata: b\n\n", [b"data: a\n\n", b"\ndata: b\n\n"], b""),
    (b": ping\n\ndata: a\n\n", [b": ping\n\n", b"data: a\n\n"], b""),
    (b"event: x\ndata: a\ndata: b\n\n", [b"event: x\ndata: a\ndata: b\n\n"], b""),
    (b"\xef\xbb\xbfdata: a\n\n", [b"\xef\xbb\xbfdata: a\n\n"], b""),
    ("data: \u2028\u0085\x0b\x0c\n\n".encode(), ["data: \u2028\u0085\x0b\x0c\n\n".encode()], b""),
    (b"data: a\n\ndata: b\n", [b"data: a\n\n"], b"data: b\n"),
    (b"data: a\r\n\r\ndata: b", [b"data: a\r\n\r\n"], b"data: b"),
    (b"data: a\r\n\r", [], b"data: a\r\n\r"),
]


@pytest.mark.parametrize(("body", "frames", "rest"), CASES)
def test_a_frame_ends_with_its_blank_line(body: bytes, frames: list[bytes], rest: bytes) -> None:
    """LF, CRLF and CR, whole and byte by byte; what lacks its blank line is left over."""
    assert framed(body) == (frames, rest)
    assert framed(*bytewise(body)) == (frames, rest)
    assert framed(*frames, rest) == (frames, rest)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_frame_leaves_with_the_byte_that_completes_it(end: bytes) -> None:
    """Not one chunk later, whatever the line ends."""
    framer = SSEFramer()
    last = (b"data: a" + end + end)[-1:]
    assert framer.feed((b"data: a" + end + end)[:-1]) == []
    assert framer.feed(last) == [b"data: a" + end + end]


pieces = st.sampled_from(
    [b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"data: a", b": c", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"x"]
)
cuts = st.lists(st.integers(0, 60), max_size=8)


@more_examples(5)
@given(body=st.lists(pieces, max_size=20).map(b"".join), places=cuts)
@example(body=b"data: a\r\n\r\n\n", places=[10, 11])
def test_no_byte_is_lost(body: bytes, places: list[int]) -> None:
    """Frames and rest are the bytes that came, however mixed the line ends and wherever the cuts."""
    frames, rest = framed(*cut(body, places))
    assert b"".join(frames) + rest == body


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@more_examples(5)
@given(
    lines=st.lists(st.sampled_from([b"", b"", b"data: a", b": c", b"event: x", b"\xc3\xa9"]), max_size=20), places=cuts
)
def test_any_cuts_give_the_same_frames(end: bytes, lines: list[bytes], places: list[int]) -> None:
    """In a stream that ends its lines in one way."""
    body = end.join(lines)
    assert framed(*cut(body, places)) == framed(body)


@pytest.mark.parametrize("body", [b"data: a\n\r\ndata: b\n\n", b"data: a\r\r\ndata: b\r\n\r\n", b"\r\n\r\n\r\r\n"])
def test_mixed_line_ends_are_cut_alike(body: bytes) -> None:
    """A stream that mixes its line ends gives the same frames whole and byte by byte."""
    assert framed(*bytewise(body)) == framed(body)


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_long_frame_byte_by_byte(end: bytes) -> None:
    """A megabyte in single bytes comes out as the frames that it is; a byte is not looked at again and again."""
    long = b"data: " + b"x" * 999_990 + end + end
    framer = SSEFramer()
    frames = [frame for at in range(len(long)) for frame in framer.feed(long[at : at + 1])]
    assert frames == [long]


def test_many_frames_in_one_chunk() -> None:
    """Fifty thousand frames in one chunk are that many frames."""
    assert len(framed(b"data: a\n\n" * 50_000)[0]) == 50_000
    assert len(framed(b"data: a\r\n\r\n" * 50_000)[0]) == 50_000


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\r\n\r\n", b"a"),
        (b"data:  a\r\r", b" a"),
        (b"data: a", b"a"),
        (b"data: {\ndata: }\n\n", b"{\n}"),
        (b"data:\n\n", b""),
        (b"event: x\nid: 1\ndata: a\n: c\n\n", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        ("data: \u2028\n\n".encode(), "\u2028".encode()),
        (b": data: a\n\n", None),
        (b"event: x\n\n", None),
        (b"database: x\n\n", None),
        (b"\n", None),
    ],
)
def test_data_of_a_frame(frame: bytes, data: bytes | None) -> None:
    """Its data lines, one space taken off each, joined by LF."""
    assert sse.data(frame) == data


EVENT = [b"event: x", b"id: 1", b": c", b"data: 0", b'data: {"a":1}', b'data: "b":2}', b"data: {"]


@more_examples(2)
@given(lines=st.lists(st.sampled_from(EVENT), min_size=1, max_size=4), end=st.sampled_from([b"\n", b"\r\n"]))
@example(lines=[b"event: x", b"data: 0", b'data: {"a":1}'], end=b"\n")
def test_the_payload_is_made_of_all_data(lines: list[bytes], end: bytes) -> None:
    """Short cuts for usual shapes read what a client reads, and what an edit of the frame finds."""
    frame = end.join([*lines, b"", b""])
    text = EVENTS.text(frame)
    try:
        payload = EVENTS.payload(frame)
    except NotJSON:
        assert not isinstance(json_of(text), dict)
    else:
        assert (payload or {}) == json_of(text)


@more_examples(2)
@given(
    blanks=st.lists(st.sampled_from([b"", b" ", b"\n", b"\r", b"\r\n", b"\t"]), min_size=5, max_size=5),
    name=st.sampled_from([b"", b"event: x\n", b"event: x\r\n", b": c\n", b"id: 1\n"]),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]),
)
@example(blanks=[b"", b"\n", b"", b"", b""], name=b"", end=b"\r\n\r\n")
@example(blanks=[b"", b"\r", b"", b"", b""], name=b"event: x\n", end=b"\n\n")
def test_an_edit_finds_what_was_read(blanks: list[bytes], name: bytes, end: bytes) -> None:
    """Where a line ends between two tokens of the JSON text, reading and editing see the same."""
    text = b"{%b" % blanks[0] + blanks[1].join([b'"a"', b":", b"1"]) + blanks[2] + b',"b":2' + blanks[3] + b"}"
    (frame, *_), _ = framed(name + b"data: " + text + end + blanks[4])
    try:
        payload = EVENTS.payload(frame)
    except NotJSON:
        return
    assert (payload or {}) == json_of(EVENTS.text(frame))
    edited = EVENTS.with_text(frame, EVENTS.text(frame).replace(b"1", b"3"))
    assert EVENTS.payload(edited) == (payload and payload | {"a": 3})


def json_of(text: bytes) -> Any:
    """What a JSON text holds; None if it is none."""
    try:
        return loads(text)
    except NotJSON:
        return None


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b": a\n\n", True),
        (b":\r\n: b\r\n\r\n", True),
        (b"data: a\n\n", False),
        (b": a\ndata: b\n\n", False),
        (b"\n", False),
    ],
)
def test_a_comment_has_nothing_but_comments(frame: bytes, expected: bool) -> None:
    """A frame with a field beside its comments is no comment."""
    assert sse.is_comment(frame) is expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"data: {}\n\n", b"data: [1]\n\n"),
        (b"data:{}\n\n", b"data:[1]\n\n"),
        (b"event: x\r\n: c\r\ndata: {\r\ndata: }\r\nid: 7\r\n\r\n", b"event: x\r\n: c\r\ndata: [1]\r\nid: 7\r\n\r\n"),
        (b"data: {}\r\r", b"data: [1]\r\r"),
        (b"data: {}\n", b"data: [1]\n"),
        (b"\xef\xbb\xbfdata: {}\n\n", b"\xef\xbb\xbfdata: [1]\n\n"),
    ],
)
def test_other_data_in_the_same_frame(frame: bytes, expected: bytes) -> None:
    """Other fields, comments, line ends, the space behind the colon and a byte order mark stay."""
    assert sse.with_data(frame, b"[1]") == expected


def test_data_of_several_lines_stays_data() -> None:
    """A payload with line breaks becomes as many data lines, and reads as it was."""
    frame = sse.with_data(b"event: x\r\ndata: {}\r\n\r\n", b"{\n1\n}")
    assert frame == b"event: x\r\ndata: {\r\ndata: 1\r\ndata: }\r\n\r\n"
    assert sse.data(frame) == b"{\n1\n}"


def test_an_own_event() -> None:
    """Named or not, it ends in its blank line."""
    assert sse.event(b"{}") == b"data: {}\n\n"
    assert sse.event(b"{}", "ping") == b"event: ping\ndata: {}\n\n"
