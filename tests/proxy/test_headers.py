"""Which headers go on: what servers in front would refuse, and so cannot be shown over a socket."""

import pytest

from callfuse.proxy.headers import has_unknown_coding, to_client, to_upstream, unbuffered


def test_a_length_beside_chunks_is_dropped() -> None:
    """Two framings in one message are how requests are smuggled; the chunks are what was read."""
    both = [(b"content-length", b"5"), (b"x", b"1"), (b"transfer-encoding", b"chunked")]
    assert to_upstream(both) == [("x", "1")]
    assert to_client(both, bodiless=False) == [(b"x", b"1")]


def test_a_length_cannot_be_named_away() -> None:
    """`connection: content-length` would leave the body without an end."""
    named = [(b"connection", b"Content-Length, X-Mine"), (b"content-length", b"5"), (b"x-mine", b"1")]
    assert to_upstream(named) == [("content-length", "5")]
    assert to_client(named, bodiless=False) == [(b"content-length", b"5")]


def test_chunks_are_the_only_transfer_coding() -> None:
    """However they are named; an empty element of a list means nothing."""
    known = [(), (b"chunked",), (b"CHUNKED",), (b"\tchunked ",), (b", chunked,,",), (b"", b"chunked")]
    unknown = [
        (b"",),
        (b"gzip, chunked",),
        (b"gzip", b"chunked"),
        (b"chunked", b"chunked"),
        (b"xchunked",),
        (b"chunked;a",),
    ]
    name = b"Transfer-Encoding"
    assert [one for one in known if has_unknown_coding([(b"x", b"gzip"), *((name, value) for value in one)])] == []
    assert [one for one in unknown if not has_unknown_coding([(name, value) for value in one])] == []


def test_names_are_in_lower_case() -> None:
    """ASGI asks for it, whatever the upstream wrote and whatever a host hands over."""
    assert to_upstream([(b"X-A", b"1"), (b"HOST", b"h"), (b"x-a", b"2")]) == [("x-a", "1"), ("x-a", "2")]
    assert to_client([(b"X-A", b"1"), (b"Connection", b"close")], bodiless=False) == [(b"x-a", b"1")]


def test_values_that_are_not_utf8_are_kept_readable() -> None:
    """UTF-8 keeps its bytes on the way to the upstream; Latin-1 becomes the UTF-8 of the same characters."""
    assert to_upstream([(b"a", "caf\u00e9".encode()), (b"b", b"caf\xe9")]) == [("a", "caf\u00e9"), ("b", "caf\u00e9")]


def test_a_bodiless_answer_has_no_length() -> None:
    """The length of a 304 is that of another answer."""
    assert to_client([(b"Content-Length", b"9"), (b"etag", b"1")], bodiless=True) == [(b"etag", b"1")]


@pytest.mark.parametrize(
    "content_type",
    [b"text/event-stream; charset=utf-8", b"Text/Event-Stream", b"application/x-ndjson"],
)
def test_a_stream_is_not_to_be_buffered(content_type: bytes) -> None:
    """nginx in front would hold it back; what the upstream says of that stays."""
    stream = [(b"content-type", content_type), (b"x", b"1")]
    assert unbuffered(stream) == [*stream, (b"x-accel-buffering", b"no")]
    said = [*stream, (b"x-accel-buffering", b"yes")]
    assert unbuffered(said) == said


@pytest.mark.parametrize("headers", [[], [(b"content-type", b"application/json")], [(b"content-length", b"2")]])
def test_other_answers_keep_their_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """They are better buffered."""
    assert unbuffered(headers) == headers
