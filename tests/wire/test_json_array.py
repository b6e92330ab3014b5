"""JSON arrays in pieces: frames joined are the stream, in any chunks, and each leaves with its last byte."""

import json
import re
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire import JSON_ARRAY, NotFramed, with_separator
from callfuse.wire.jsontext import NotJSON, loads
from tests.support.examples import more_examples
from tests.support.streams import chunkings
from tests.support.wire import bytewise

TEXTS = st.text(alphabet=st.sampled_from('ab{}[],"\\\n\r é\u2028'), max_size=12)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)


def frames_of(chunks: tuple[bytes, ...]) -> list[bytes]:
    """All frames of a stream, the rest among them."""
    framer = JSON_ARRAY.framer()
    found = [frame for chunk in chunks for frame in framer.feed(chunk)]
    rest = framer.flush()
    return [*found, *([rest] if rest else [])]


def objects_of(frames: list[bytes]) -> list[Any]:
    """The payloads."""
    read = [JSON_ARRAY.payload(frame) for frame in frames]
    return [payload for payload in read if payload is not None]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[list[Any], bytes]:
    """Objects, and an array of them as some server prints it."""
    listed = draw(st.lists(OBJECTS, max_size=4))
    indent = draw(st.sampled_from([None, 0, 1, 2, "\t"]))
    between = draw(st.sampled_from([b",", b", ", b"\n,\r\n", b",\n  ", b" \t,"]))
    text = between.join(json.dumps(one, ensure_ascii=False, indent=indent).encode() for one in listed)
    before, after = draw(st.sampled_from([(b"[", b"]"), (b"[ ", b"\n]\n"), (b"\n[\r\n", b" ]")]))
    return listed, before + text + after


@more_examples(5)
@given(data=st.data())
def test_frames_are_the_stream(data: st.DataObject) -> None:
    """In any chunks: joined they are the bytes, read they are the elements."""
    listed, body = data.draw(arrays())
    chunks = data.draw(chunkings(body))
    frames = frames_of(chunks)
    assert b"".join(frames) == body
    assert objects_of(frames) == [loads(json.dumps(one)) for one in listed]  # which rounds wide integers
    assert frames == frames_of((body,)), "the cuts decide nothing"


@more_examples(5)
@given(
    listed=st.lists(OBJECTS, min_size=1, max_size=4),
    indent=st.sampled_from([None, 0, 1, 2]),
    before=st.sampled_from([",", ",\r\n", "\n,\r\n", " , ", "\n,"]),
    after=st.sampled_from(["", "\n", "\r\n"]),
    broken=st.sampled_from(["", ",{}", ",{}{}", ',{"a"}', ",{", ',{"a":{"b":"}"}', ',{"a":"\\"}"']),
)
def test_elements_in_chunks_of_their_own(
    listed: list[Any], indent: int | None, before: str, after: str, broken: str
) -> None:
    """As servers send them, a brace too few or no JSON among them: the frames are those of any other chunks."""
    texts = [json.dumps(one, ensure_ascii=False, indent=indent) for one in listed]
    pieces = ["[" + texts[0] + after, *(before + text + after for text in texts[1:]), broken, before + texts[-1], "]"]
    chunks = tuple(piece.encode() for piece in pieces)
    body = b"".join(chunks)
    assert frames_of(chunks) == frames_of((body,)) == frames_of(tuple(bytewise(body)))


@more_examples(5)
@given(
    listed=st.lists(OBJECTS, min_size=1, max_size=2),
    put_in=st.lists(st.tuples(st.floats(0, 1), st.sampled_from([*'a,:[] \\\n{}"', '\\"', "}}", '""'])), max_size=3),
    before=st.sampled_from([",", ",\r\n"]),
)
def test_elements_alike(listed: list[Any], put_in: list[tuple[float, str]], before: str) -> None:
    """Chunks that are elements but for a few characters: the frames are those of any other chunks."""
    texts = [json.dumps(one, ensure_ascii=False) for one in listed]
    almost = texts[-1]
    for place, character in put_in:
        at = 1 + round(place * (len(almost) - 2))
        almost = almost[:at] + character + almost[at:]
    pieces = ["[" + texts[0], *(before + text for text in (texts[-1], almost, texts[-1], almost, texts[0])), "]"]
    chunks = tuple(piece.encode() for piece in pieces)
    body = b"".join(chunks)
    assert elements_of(chunks) == elements_of((body,)) == elements_of(tuple(bytewise(body)))


def elements_of(chunks: tuple[bytes, ...]) -> list[bytes]:
    """The frames up to what makes the stream no array of objects, whose rest passes as it comes."""
    return list(takewhile(re.compile(rb"\s*[\[,]?\s*(\{.*|\]?)", re.DOTALL).fullmatch, frames_of(chunks)))


def test_a_brace_in_a_text_may_end_a_chunk() -> None:
    """What a backslash escapes is no end of a string, though the braces and quotes are those of an element before."""
    whole, part, rest = b',{"a":{"b":"x"}}', b',{"a":{"b":"\\"}}', b'"}}'
    chunks = (b'[{"c":1}', whole, whole, part, rest, whole, b"]")
    assert frames_of(chunks) == [b'[{"c":1}', whole, whole, part + rest, whole, b"]"]


@more_examples(5)
@given(data=st.data())
def test_an_element_leaves_with_its_last_byte(data: st.DataObject) -> None:
    """After each byte, as many elements are out as are complete."""
    listed, body = data.draw(arrays())
    framer, out, decoder = JSON_ARRAY.framer(), b"", json.JSONDecoder()
    for at, byte in enumerate(bytewise(body)):
        for frame in framer.feed(byte):
            out += frame
        if byte == b"}" and listed:
            text = body[len(out) - out[::-1].index(b"}") if b"}" in out else 0 : at + 1].decode("utf-8", "replace")
            begin = text.find("{")
            if begin >= 0 and _is_whole(decoder, text[begin:]):
                assert len(out) == at + 1
    assert out + framer.flush() == body


def _is_whole(decoder: json.JSONDecoder, text: str) -> bool:
    try:
        return decoder.raw_decode(text)[1] == len(text)
    except ValueError:
        return False


@more_examples(5)
@given(body=st.one_of(st.binary(max_size=200), st.text('[]{},":\\ \nab', max_size=200).map(str.encode)), data=st.data())
def test_no_byte_of_anything_is_lost(body: bytes, data: st.DataObject) -> None:
    """Whatever comes, it leaves, and whatever is no array of objects is no payload."""
    frames = frames_of(data.draw(chunkings(body)))
    assert b"".join(frames) == body
    for frame in frames:
        try:
            payload = JSON_ARRAY.payload(frame)
        except NotJSON:
            continue
        assert payload is None or isinstance(payload, dict)


@pytest.mark.slow
def test_byte_by_byte() -> None:
    """A long element and the blanks before it in single bytes; a byte is not looked at again and again."""
    chunks = (b"[{}", b",", *[b" "] * 200_000, b'{"', *[b"x"] * 200_000, b'":1}')
    assert frames_of(chunks) == [b"[{}", b"".join(chunks[1:])]


PRETTY = b'[{\n  "a": {\n    "b": "}\\n}"\n  }\n}\n,\r\n{\n  "a": {\n    "b": 1\n  }\n}\n]\n'


def test_a_pretty_printed_array() -> None:
    """As Google prints it: an element with what is before it, the line end after it by itself."""
    first, second = PRETTY.split(b"\n,\r\n")
    assert frames_of((PRETTY,)) == [first, b"\n", b",\r\n" + second[:-3], b"\n", b"]", b"\n"]
    assert [JSON_ARRAY.payload(frame) for frame in frames_of((PRETTY,))] == [
        {"a": {"b": "}\n}"}}, None, {"a": {"b": 1}}, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [b"{\n    ", b'"b"', b'": 1'])
def test_the_cuts_do_not_end_a_damaged_element(lost: bytes) -> None:
    """One whose braces or quotes do not match ends where the print says, however it comes."""
    body = PRETTY[:-3] + b",\r\n" + PRETTY[PRETTY.rindex(b"{\n  ", 0, -15) :]
    at = body.index(lost, body.index(b",\r\n"))
    body = body[:at] + body[at + len(lost) :]
    whole = frames_of((body,))
    assert all(frames_of((body[:cut], body[cut:])) == whole for cut in range(len(body)))


@pytest.mark.parametrize("body", [b"data: 1", b"[1, 2]", b'[{"a": 1} x {"b": 2}]'])
def test_what_is_no_array_of_objects_breaks_the_framing(body: bytes) -> None:
    """However it is cut."""
    for size in range(1, len(body) + 1):
        framer = JSON_ARRAY.framer()
        assert not framer.broken
        for at in range(0, len(body), size):
            framer.feed(body[at : at + size])
        assert framer.broken


def test_an_element_in_another_print_is_still_found() -> None:
    """An error that a gateway appends on one line ends where its braces say."""
    framer = JSON_ARRAY.framer()
    framer.feed(PRETTY[: PRETTY.index(b"\n,")])
    assert framer.feed(b'\n,{"error": {"code": 503}}]') == [b"\n", b',{"error": {"code": 503}}', b"]"]


@pytest.mark.parametrize(
    ("frame", "first", "wanted"),
    [
        (b"[{}", True, b"[{}"),
        (b"[ {}", True, b"[ {}"),
        (b",\r\n{}", True, b"[{}"),
        (b"{}", True, b"{}"),
        (b",\r\n{}", False, b",\r\n{}"),
        (b"[{}", False, b",\r\n{}"),
        (b"[\n{}", False, b",\r\n{}"),
    ],
)
def test_an_element_at_its_place(frame: bytes, *, first: bool, wanted: bytes) -> None:
    """The first element follows a bracket, each other one a comma; what fits stays as it is."""
    assert with_separator(frame, first=first) == wanted


def test_another_payload_keeps_what_is_before() -> None:
    """`with_text` changes the object and nothing else."""
    assert JSON_ARRAY.text(b',\r\n{"a": 1}') == b'{"a": 1}'
    assert JSON_ARRAY.with_text(b',\r\n{"a": 1}', b"{}") == b",\r\n{}"


@pytest.mark.parametrize("good", [b"", b'[{"a":1}', b'[{"a":1},\n{"b":2}'])
@pytest.mark.parametrize("wrong", [b",,", b",5", b"x", b",[", b" data"])
@given(data=st.data())
def test_the_first_wrong_byte_ends_a_frame_that_says_so(good: bytes, wrong: bytes, data: st.DataObject) -> None:
    """However the stream is cut: no frame before it does, and behind it none can be told."""
    frames = frames_of(data.draw(chunkings(good + wrong + b'{"c":3}]')))
    at = next(at for at, frame in enumerate(frames) if _is_unframed(frame))
    assert b"".join(frames[: at + 1]) == good + wrong[: wrong.strip().startswith(b",") + 1 + wrong.startswith(b" ")]


def _is_unframed(frame: bytes) -> bool:
    try:
        JSON_ARRAY.payload(frame)
    except NotFramed:
        return True
    return False
