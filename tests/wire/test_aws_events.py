"""AWS event streams: framed byte for byte however they are cut, as botocore does it; broken ones end the framing."""

import json
import struct
from base64 import b64encode
from binascii import a2b_base64
from typing import Any
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]  # it has no types
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire import AWS_CHUNKS, AWS_EVENTS
from callfuse.wire.aws_events import EXCEPTION, HEARTBEAT, AWSEventFramer, chunk, event, exception, is_begin, message
from callfuse.wire.jsontext import NotFramed, NotJSON, UnreadableJSON
from tests.support.wire import bytewise
from tests.support.wire import cut as cut_at

SAID: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "é\u2028 \U0001f993"}}},
    {"metadata": {"usage": {}}},
]
STREAM = b"".join(map(event, SAID))
IDENTITY = b'{"x":123456789012345678901234567890,"a": 1.0}'


def framed(headers: bytes, payload: bytes) -> bytes:
    """A message by hand."""
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    begun = lengths + struct.pack("!I", crc32(lengths)) + headers + payload
    return begun + struct.pack("!I", crc32(begun))


def fed(chunks: tuple[bytes, ...]) -> list[bytes]:
    """The frames of these chunks, and what is left."""
    framer = AWSEventFramer()
    found = [frame for one in chunks for frame in framer.feed(one)]
    rest = framer.flush()
    assert framer.empty
    assert framer.waiting == 0
    return [*found, *([rest] if rest else [])]


def test_botocore_reads_what_is_written() -> None:
    """Types, headers and payloads."""
    buffer = EventStreamBuffer()
    buffer.add_data(STREAM + exception("throttlingException", b"{}") + HEARTBEAT)
    found = list(buffer)
    assert [json.loads(one.payload) for one in found[:3]] == [said for one in SAID for said in one.values()]
    assert [one.headers[":event-type"] for one in found[:3]] == [kind for one in SAID for kind in one]
    assert found[3].headers[":exception-type"] == "throttlingException"
    assert [one.to_response_dict()["status_code"] for one in found] == [200, 200, 200, 400, 200]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_cut_gives_the_same_frames(places: list[int]) -> None:
    """Each as soon as it is complete, and what waits is counted."""
    chunks = cut_at(STREAM, places)
    assert fed(chunks) == [event(one) for one in SAID]
    framer = AWSEventFramer()
    came = left = 0
    for one in chunks:
        came += len(one)
        left += sum(map(len, framer.feed(one)))
        assert framer.waiting == came - left
        assert framer.empty == (came == left)
        assert left == max(end for end in (0, *ends()) if end <= came)


def ends() -> list[int]:
    """Where the messages end."""
    sizes = [len(event(one)) for one in SAID]
    return [sum(sizes[: at + 1]) for at in range(len(sizes))]


@given(st.data())
def test_a_broken_prelude_loses_nothing(data: st.DataObject) -> None:
    """It is a frame of its own, at the same place however the stream is cut; all behind it comes as it is."""
    spoiled = bytearray(STREAM)
    place = ends()[0] + data.draw(st.integers(0, 11))
    spoiled[place] ^= data.draw(st.integers(1, 255))
    body = bytes(spoiled)
    for chunks in ((body,), bytewise(body), cut_at(body, data.draw(st.lists(st.integers(0, len(body)), max_size=5)))):
        frames = fed(chunks)
        assert b"".join(frames) == body
        assert frames[:2] == [body[: ends()[0]], body[ends()[0] : ends()[0] + 12]]
        with pytest.raises(NotFramed):
            AWS_EVENTS.payload(frames[1])


@pytest.mark.parametrize(
    ("size", "headers"),
    [(15, 0), (0, 0), (20, 5), (200_000, 128 * 1024 + 1), (24 * 1024 * 1024 + 17, 0), (2**32 - 1, 0)],
)
def test_lengths_that_no_sdk_takes(size: int, headers: int) -> None:
    """They are never waited for, so that what waits is bounded."""
    lengths = struct.pack("!II", size, headers)
    frames = AWSEventFramer().feed(lengths + struct.pack("!I", crc32(lengths)) + b"and more")
    assert [len(one) for one in frames] == [12, 8]
    with pytest.raises(NotFramed):
        AWS_EVENTS.payload(frames[0])


def test_the_payload_of_an_event() -> None:
    """Its type is the only key; an empty payload is an empty object; an exception or an error has one key for all."""
    assert [AWS_EVENTS.payload(event(one)) for one in SAID] == SAID
    assert AWS_EVENTS.payload(message("ping", b"")) == {"ping": {}}
    assert AWS_EVENTS.payload(exception("x", b'{"message":"m"}')) == {EXCEPTION: {"message": "m"}}
    error = b"\x0d:message-type\x07\x00\x05error"
    assert AWS_EVENTS.payload(framed(error, b"")) == {EXCEPTION: {}}
    assert AWS_EVENTS.payload(framed(b"", b"anything")) is None
    assert AWS_EVENTS.text(framed(b"", b"anything")) == b"{}"


def test_headers_of_every_type_are_skipped() -> None:
    """Flags, numbers, bytes, times and identifiers before the ones that count."""
    odd = [b"\x00", b"\x01", b"\x02a", b"\x03ab", b"\x04abcd", b"\x05abcdefgh", b"\x06\x00\x02ab", b"\x08abcdefgh",
           b"\x09" + bytes(16)]  # fmt: skip
    before = b"".join(b"\x01a" + one for one in odd)
    named = b"\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x04ping"
    assert AWS_EVENTS.payload(framed(before + named, b"{}")) == {"ping": {}}
    for broken in (before + b"\x01a\x0b", named[:-1], named + b"\x09", b"\x05ab", b"\x01a\x07\x00"):
        with pytest.raises(NotFramed):
            AWS_EVENTS.payload(framed(broken, b"{}"))


def test_a_wrong_checksum() -> None:
    """Of the whole message, whatever byte is wrong."""
    whole = event(SAID[1])
    for place in range(len(whole)):
        spoiled = bytearray(whole)
        spoiled[place] ^= 4
        with pytest.raises(NotJSON):
            AWS_EVENTS.payload(bytes(spoiled))


@pytest.mark.parametrize("payload", [b"{", b"\xff", b'{"a":[' + b"1," * 200_000 + b"1]}", b"[1]", b'"x"'])
def test_a_payload_that_is_not_read(payload: bytes) -> None:
    """Broken JSON, too many values, and no object where a chunk carries it; the message itself is whole."""
    if payload[:1] in b'["':
        assert AWS_EVENTS.payload(message("x", payload)) == {"x": json.loads(payload)}
    else:
        with pytest.raises(NotJSON) as caught:
            AWS_EVENTS.payload(message("x", payload))
        assert not isinstance(caught.value, NotFramed)
    with pytest.raises(NotJSON) as caught:
        AWS_CHUNKS.payload(chunk(payload))
    assert not isinstance(caught.value, NotFramed)


def test_a_message_that_is_cut_off() -> None:
    """The end of the body came before its own."""
    for size in range(1, len(event(SAID[0]))):
        with pytest.raises(NotJSON) as caught:
            AWS_EVENTS.payload(event(SAID[0])[:size])
        assert not isinstance(caught.value, NotFramed)


def test_a_changed_payload_keeps_the_headers() -> None:
    """The text of a frame is that of its payload; written back unchanged it is the frame."""
    odd = b"\x01a\x03ab\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x01x"
    frame = framed(odd, IDENTITY)
    assert AWS_EVENTS.text(frame) == b'{"x":%b}' % IDENTITY
    assert AWS_EVENTS.with_text(frame, AWS_EVENTS.text(frame)) == frame
    assert AWS_EVENTS.with_text(frame, b'{"x": {"b":2}}') == framed(odd, b'{"b":2}')


def test_what_a_chunk_carries() -> None:
    """A JSON object in base64; what else the event says stays when it is changed. Other events carry nothing."""
    outer = b'{"p":"abc","bytes":"%b"}' % b64encode(IDENTITY)
    frame = message("chunk", outer)
    assert AWS_CHUNKS.text(frame) == IDENTITY
    assert AWS_CHUNKS.with_text(frame, IDENTITY) == frame
    assert AWS_CHUNKS.with_text(frame, b"{}") == message("chunk", b'{"p":"abc","bytes":"e30="}')
    assert AWS_CHUNKS.payload(chunk(b'{"type":"ping"}')) == {"type": "ping"}
    assert AWS_CHUNKS.payload(message("chunk", b"{}")) == {}
    assert AWS_CHUNKS.payload(HEARTBEAT) is None
    assert AWS_CHUNKS.text(HEARTBEAT) == b"{}"
    failed = exception("modelTimeoutException", b'{"message":"m"}')
    assert AWS_CHUNKS.payload(failed) == {EXCEPTION: {"message": "m"}}
    assert json.loads(AWS_CHUNKS.text(failed)) == {EXCEPTION: {"message": "m"}}
    assert AWS_CHUNKS.with_text(failed, AWS_CHUNKS.text(failed)) == failed
    for bad in (b'{"bytes":"e3"}', b'{"bytes":"AAA"}', b'{"bytes":"W10="}'):
        with pytest.raises(NotJSON):
            AWS_CHUNKS.payload(message("chunk", bad))


def test_how_an_event_stream_begins() -> None:
    """By a valid prelude: twelve bytes tell, one byte may tell that it is none."""
    assert [is_begin(STREAM[:size]) for size in (0, 1, 11, 12, 40)] == [None, None, None, True, True]
    assert [is_begin(text) for text in (b"{", b"data: {", b"\0\0\0\1" * 3, b"\2")] == [False] * 4


def test_a_chunk_that_would_take_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not even unpacked: others wait meanwhile. With its next one all goes on."""
    unpacked: list[int] = []

    def counting(text: str) -> bytes:
        unpacked.append(len(text))
        return a2b_base64(text)

    monkeypatch.setattr("callfuse.wire.aws_events.a2b_base64", counting)
    long, short = (chunk(b'{"type":"ping","x":"' + b"x" * size + b'"}') for size in (5 * 1024 * 1024, 5))
    with pytest.raises(UnreadableJSON):
        AWS_CHUNKS.payload(long)
    assert AWS_CHUNKS.payload(short) == {"type": "ping", "x": "xxxxx"}
    assert len(unpacked) == 1
    assert AWSEventFramer().feed(long + short) == [long, short]
