"""Frames that follow each other are edited as if each were alone, whatever they share."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire import AWS_EVENTS, EVENTS, Format
from callfuse.wire.aws_events import event
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import END, Edit, apply, replaced_spans
from callfuse.wire.ndjson import NDJSON
from tests.support.examples import more_examples
from tests.support.work import calls_made

TEXTS = ("", "a", "ab", '"', "\\", '"},{"index":7', "é\u2028", "\ud800", '\\"piece":')
SCALARS = (0, 10, -1.5e300, True, None, 12345678901234567890123)
RAW = (b"7", b'"other"', b"null", b'{"a":[]}', None, lambda old: old + b" ")
PATHS: tuple[tuple[str | int, ...], ...] = (
    ("id",),
    ("choices", 0, "index"),
    ("choices", 0, "delta", "piece"),
    ("choices", 0, "delta"),
    ("choices", END),
    ("usage",),
    ("new",),
)


def chunk(piece: Any, id_: Any, index: Any, usage: Any) -> dict[str, Any]:
    """A frame's payload like a vendor's: the piece stands in the middle, behind a key that occurs twice."""
    delta = {"piece": piece, "role": "assistant"}
    return {"id": id_, "choices": [{"index": index, "delta": delta}], "usage": usage, "index": index}


scalars = st.sampled_from(TEXTS) | st.sampled_from(SCALARS)
chunks = st.builds(chunk, scalars, st.sampled_from(("c-1", "c-2")), st.sampled_from((0, 1)), scalars)
spaces = st.sampled_from(((",", ":"), (", ", ": "), (" ,", ":\t")))


@st.composite
def edited_texts(draw: st.DrawFn) -> list[tuple[bytes, list[Edit]]]:
    """JSON texts in a row, mostly alike, each with its edits, mostly the same."""
    written, ascii_only = draw(spaces), draw(st.booleans())
    paths = draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=3))
    found = []
    for value in draw(st.lists(chunks, min_size=1, max_size=8)):
        if draw(st.integers(0, 9)) == 0:
            written = draw(spaces)
        here = paths if draw(st.integers(0, 9)) else draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=3))
        if ("choices", 0, "delta") in here:
            here = [path for path in here if path[:3] != ("choices", 0, "delta") or len(path) == 3]
        text = json.dumps(value, separators=written, ensure_ascii=ascii_only)
        edits = [Edit(path, draw(st.sampled_from(RAW))) for path in here]
        found.append((text.encode("utf-8", "surrogatepass"), edits))
    return found


@more_examples(5)
@given(edited_texts())
def test_texts_in_a_row_are_edited_like_each_alone(texts: list[tuple[bytes, list[Edit]]]) -> None:
    """The bytes are those of `apply`, whatever came before."""
    editor = FrameEditor(EVENTS)
    for text, edits in texts:
        assert editor.apply(text, edits) == apply(text, edits)


@more_examples(5)
@given(st.lists(st.tuples(scalars, scalars), min_size=4, max_size=8))
def test_pieces_in_one_envelope_are_edited_like_each_alone(values: list[tuple[Any, Any]]) -> None:
    """So are texts that differ in two values and lose their id and their number, the way of a spliced answer."""
    editor = FrameEditor(EVENTS)
    for at, (piece, usage) in enumerate(values):
        text = json.dumps(chunk(piece, "c-1", at, usage)).encode("utf-8", "surrogatepass")
        edits = [Edit(("id",), b'"mine"'), Edit(("index",), b"%d" % at), Edit(("usage",), lambda old: old + b" ")]
        assert editor.apply(text, edits) == apply(text, edits)


@pytest.mark.parametrize("piece", [b'"x","id":"c-9"', b'{"a":1}', b"[1]", b'"x" ', b' "x"', b'"x","piece":"y"'])
@pytest.mark.parametrize("path", [("id",), ("choices", 0, "delta", "piece")])
def test_what_is_no_single_value_goes_the_slow_way(piece: bytes, path: tuple[str | int, ...]) -> None:
    """A member more, an object or white space where a piece stood is no frame like the one before."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(path, b'"mine"')]
    for text in (b'"a"', b'"bc"', b'"def"', piece, b'"g"'):
        whole = b'{"choices":[{"delta":{"piece":' + text + b'}}],"id":"c-1"}'
        assert editor.apply(whole, edits) == apply(whole, edits)


def frames_of(form: Format, values: Iterable[Any]) -> list[bytes]:
    """Frames of a format, of the shape that vendors send."""
    write: Callable[[Any], bytes] = {
        id(EVENTS): lambda value: b"event: delta\ndata: " + json.dumps(value).encode() + b"\n\n",
        id(NDJSON): lambda value: json.dumps(value).encode() + b"\n",
        id(AWS_EVENTS): lambda value: event({"contentBlockDelta": value}),
    }[id(form)]
    return [write(value) for value in values]


@pytest.mark.parametrize("form", [EVENTS, NDJSON, AWS_EVENTS], ids=["events", "lines", "aws"])
def test_frames_keep_what_is_around_their_payload(form: Format) -> None:
    """Each format's frame is the one in which only the payload has changed, with its checksums."""
    editor = FrameEditor(form)
    inside = ("contentBlockDelta",) if form is AWS_EVENTS else ()
    edits = [Edit((*inside, "id"), b'"mine"')]
    for frame in frames_of(form, [chunk(f"piece {at}", "c-1", 0, None) for at in range(6)]):
        assert editor.edit(frame, edits) == form.with_text(frame, apply(form.text(frame), edits))
        assert editor.edit(frame, []) == frame


def pieces(count: int) -> Sequence[bytes]:
    """The frames of an answer in pieces."""
    return frames_of(EVENTS, [chunk(f"piece {at}", "c-1", 0, None) for at in range(count)])


def test_a_frame_like_the_one_before_is_not_walked_through() -> None:
    """It costs a fraction of the calls that it costs alone."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(("id",), b'"mine"'), Edit(("choices", 0, "index"), b"3")]
    *begin, last = pieces(4)
    for frame in begin:
        editor.edit(frame, edits)
    alone = calls_made(lambda: FrameEditor(EVENTS).edit(last, edits))
    assert calls_made(lambda: editor.edit(last, edits)) < alone / 4


def test_an_object_is_replaced_without_a_walk() -> None:
    """Whatever values differ in it, as a vendor's counts do from one piece of an answer to the next."""
    editor = FrameEditor(EVENTS)
    usage = {"in": 3, "by": [{"kind": "text", "of": 3}], "none": {}}
    values = [{"piece": f"{at}", "usage": usage | {"out": at}, "id": "c-1"} for at in range(30)]
    edits = [Edit(("usage",), b'{"out":7}'), Edit(("id",), b'"mine"')]
    with patch("callfuse.wire.editor.apply", side_effect=apply) as walk:
        for value in values:
            text = json.dumps(value).encode()
            assert editor.apply(text, edits) == apply(text, edits)
    assert walk.call_count < 6
    other = json.dumps(values[0] | {"usage": {"out": 1}}).encode()
    assert editor.apply(other, edits) == apply(other, edits)


def test_a_frame_with_other_keys_of_the_same_shape_begins_an_envelope_of_its_own() -> None:
    """What differs between a block's start and its pieces does not count for the pieces."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(("index",), b"3")]
    begin = b'{"type":"start","index":1,"block":{"type":"text","text":""}}'
    texts = [b'{"type":"delta","index":1,"delta":{"type":"piece","more":"%d"}}' % at for at in range(5)]
    for text in (begin, *texts):
        assert editor.apply(text, edits) == apply(text, edits)
    with patch("callfuse.wire.editor.apply") as walk:
        editor.apply(texts[0], edits)
    assert not walk.called


def test_keys_that_differ_are_no_places_to_skip() -> None:
    """A frame whose key is that of an edit has another value to replace: of equal keys the last counts."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(("id",), b"0")]
    for key in ("a", "b", "c", "id", "d"):
        text = b'{"id":1,"%b":1}' % key.encode()
        assert editor.apply(text, edits) == apply(text, edits)


def test_frames_that_never_repeat_are_no_longer_compared() -> None:
    """After a few in vain each costs what it costs without the editor, and the bytes stay right."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(("id",), b"0")]
    texts = [json.dumps({f"key {at}": 1, "id": 1}).encode() for at in range(40)]
    for text in texts[:20]:
        editor.apply(text, edits)
    alone = calls_made(lambda: apply(texts[20], edits))
    assert calls_made(lambda: editor.apply(texts[20], edits)) < alone + 5
    assert [editor.apply(text, edits) for text in texts] == [apply(text, edits) for text in texts]


def test_an_envelope_that_settles_late_is_found() -> None:
    """However many frames of other kinds came before, a long row of pieces is hardly walked through."""
    editor = FrameEditor(EVENTS)
    edits = [Edit(("id",), b"0")]
    for at in range(100):
        editor.apply(json.dumps({f"key {at}": 1, "id": 1}).encode(), edits)
    texts = [json.dumps({"piece": f"{at}", "id": 1}).encode() for at in range(100)]
    with patch("callfuse.wire.editor.apply", side_effect=apply) as walk:
        assert [editor.apply(text, edits) for text in texts] == [apply(text, edits) for text in texts]
    assert walk.call_count < 20


@pytest.mark.parametrize(
    ("text", "edits", "found"),
    [
        (b'{"a":1,"b":[true]}', [Edit(("b", 0), b"0"), Edit(("a",), b"0")], [(12, 16), (5, 6)]),
        (b'{"a":1,"a":22}', [Edit(("a",), b"0")], [(11, 13)]),
        (b'{"a":1}', [Edit(("b",), b"0")], []),
        (b'{"a":1}', [Edit(("a",), None)], []),
        (b'{"a":1}', [Edit(("a",), b"0"), Edit(("a",), b"2")], []),
    ],
)
def test_replaced_values_are_found(text: bytes, edits: list[Edit], found: list[tuple[int, int]]) -> None:
    """The spans stand in the order of the edits; there are none where an edit adds, removes or has no effect."""
    assert replaced_spans(text, edits) == found
