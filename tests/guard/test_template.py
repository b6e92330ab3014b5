"""Chunks that are read as the one before them: it makes no difference but in time."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.base import OpenCall
from callfuse.guard import template as templates
from callfuse.guard.assembly import Assembly
from callfuse.guard.growing import GrowingCalls
from callfuse.guard.template import MAX_CALLS, TRIES, ChunkTemplate, count_pieces, template_of
from callfuse.wire import EVENTS
from tests.guard.driving import play, record_of, scene
from tests.guard.written import DONE, OPENAI, chunk, part
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import every_dialect
from tests.support.plain import spin
from tests.support.streams import KNOWN, answers, fresh
from tests.support.wire import cut, frames

PIECE = '{"query": "'
SIZES = st.sampled_from([1, 1, 3, 4, 0])
Told = list[list[tuple[str, str, str]]]


def kept(kit: DialectKit, chunks: Sequence[bytes]) -> Told:
    """Id, name and arguments of the calls that an assembly keeps, which is fed what does not only grow a call."""
    made = scene(kit, ladder="observe")
    assembly = Assembly(made.dialect, made.request.choices, made.judge.settings, None)
    for one in chunks:
        if not assembly.grows(one):
            assembly.feed(one)
    return [[(call.id, call.name, call.call.text) for call in calls] for calls in record_of(assembly).rounds]


@every_dialect
@given(data=st.data())
def test_answers_of_every_dialect(kit: DialectKit, data: st.DataObject) -> None:
    """With all the habits that vendors have."""
    which = data.draw(st.sampled_from([[fresh(0)], [fresh(0), fresh(1)], [KNOWN[0], KNOWN[0]], [KNOWN[3], fresh(0)]]))
    chunks = frames(stream_of(kit, data.draw(answers(kit, which, many=False))))
    assert kept(kit, recut(chunks, data.draw(SIZES))) == parsed(kit, chunks)


def parsed(kit: DialectKit, chunks: Sequence[bytes]) -> Told:
    """The same where each frame is parsed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "TRIES", 0)
        return kept(kit, chunks)


def recut(chunks: Sequence[bytes], size: int) -> list[bytes]:
    """The chunks as a network may cut them: `size` frames each, or for 0 anywhere within them."""
    whole = b"".join(chunks)
    if not size:
        return list(cut(whole, range(70, len(whole), 170)))
    return [b"".join(chunks[at : at + size]) for at in range(0, len(chunks), size)]


@every_dialect
@given(data=st.data())
def test_a_guard_does_the_same(kit: DialectKit, data: st.DataObject) -> None:
    """Where calls are held, released, withheld, or the model is asked again: the same bytes, verdicts and causes."""
    which = data.draw(st.sampled_from([[KNOWN[0]], [KNOWN[0], fresh(0)], [KNOWN[0], KNOWN[0]], [fresh(0)]]))
    chunks = frames(stream_of(kit, data.draw(answers(kit, which, many=False))))
    ladder, size = data.draw(st.sampled_from(["block", "steer"])), data.draw(SIZES)

    def told(chunks: Sequence[bytes]) -> Any:
        guard = scene(kit, spin(), ladder=ladder).guard()
        return play(guard, chunks, chunks), repr(guard.record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "TRIES", 0)
        parsed = told(chunks)
    assert told(recut(chunks, size)) == parsed


pieces: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        ['{"a":"', "x", '"', ", ", "\\", '\\"', "é", "\ud800", "\u2028", "0", "search", "call_a", "\x00callfuse"]
    ),
    st.text(max_size=3),
    st.sampled_from([None, {"a": 1}, 7, ["x"]]),
)
deltas = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 0, 0, 0, 1])},
    optional={"id": st.sampled_from(["call_a", "call_b", "x"]), "name": st.sampled_from(["search", "x"])},
)


@st.composite
def chat_chunks(draw: st.DrawFn) -> list[bytes]:
    """What a vendor, or a bad imitation of one, sends of calls: mostly one piece after another."""
    found = [chunk({"tool_calls": [part("call_a", "")]})]
    for piece in draw(st.lists(pieces, max_size=12)):
        odd = draw(
            st.sampled_from([*[""] * 12, "parts", "id", "finish", "choice", "ascii", "beside", "twice", "comment"])
        )
        parts = [{"index": 0, "function": {"arguments": piece}}]
        if odd == "parts":
            parts += [{"index": 1, "id": "call_b", "type": "function", "function": {"name": "x", "arguments": piece}}]
        if odd == "id":
            own: dict[str, Any] = draw(deltas)
            parts = [{**own, "function": {"arguments": piece, **({"name": own.pop("name")} if "name" in own else {})}}]
        more = {"said": piece} if odd == "beside" else {}
        made = chunk({"tool_calls": parts}, "length" if odd == "finish" else None, choice=int(odd == "choice"), **more)
        if odd == "ascii":
            made = (
                b"data: "
                + json.dumps(json.loads(made[6:]), ensure_ascii=True, separators=(",", ":")).encode()
                + b"\n\n"
            )
        found += [made] * (1 + (odd == "twice")) + [b": x\n\n"] * (odd == "comment")
    return [*found, chunk({}, "tool_calls"), DONE]


@given(chunks=chat_chunks(), size=SIZES)
def test_chunks_of_any_kind(chunks: list[bytes], size: int) -> None:
    """Pieces that look like JSON, values that are no text, two calls in a frame, the same text elsewhere; one frame or
    several a chunk."""
    assert kept(OPENAI, recut(chunks, size)) == parsed(OPENAI, chunks)


def grown(*pieces: Any, **more: Any) -> bytes:
    """A chunk that adds a piece to the first call, another to the second, and so on."""
    parts = [{"index": at, "function": {"arguments": piece}} for at, piece in enumerate(pieces)]
    return chunk({"tool_calls": parts}, **more)


def learned(made: bytes, *pieces: str, closed: bool = False) -> tuple[ChunkTemplate | None, list[str]]:
    """What is learned from a chunk that has added these pieces, one to each call; the first call's pieces."""
    calls = [OpenCall(0, at, f"call_{at}", "search") for at in range(2)]
    before = count_pieces(calls)
    for call, piece in zip(calls, pieces, strict=False):
        call.pieces.append(piece)
    calls[0].closed = closed
    return template_of(made, calls, before, EVENTS.payload, GrowingCalls()), calls[0].pieces


@pytest.mark.parametrize("piece", ["", "zebra", 'a "quoted" word', "\\", "é\u2028\n", ", ", "0", "x" * 10_000])
@pytest.mark.parametrize("first", ["", PIECE])
def test_the_next_piece_is_taken(first: str, piece: str) -> None:
    """Whatever it is, as it stands in the text; and so are several in one chunk."""
    template, taken = learned(grown(first), first)
    assert template is not None
    assert not template.was_used
    assert template.append(grown(piece))
    assert taken == [first, piece]
    assert template.was_used
    assert template.append(grown(first) + grown(piece) + grown(first))
    assert taken == [first, piece, first, piece, first]


@pytest.mark.parametrize(
    "other",
    [
        b"",
        DONE,
        grown(PIECE)[:-1],
        grown(PIECE) + DONE,
        grown(PIECE) + grown(PIECE)[:-1],
        grown(PIECE) + grown(None),
        grown(PIECE) + grown("x", choice=1) + grown(PIECE),
        grown("\\").replace(b"\\\\", b"\\") + grown(', "x'),
        grown("").replace(b'""', b'"x" ') + grown(PIECE),
        grown(None),
        grown(7),
        grown({"a": "b"}),
        grown("x", "y"),
        grown("x", finish="tool_calls"),
        grown("x", finish="ab"),
        grown("x", choice=1),
        grown("x", logprobs=None),
        grown("").replace(b'""', b'"'),
        grown("").replace(b'""', b'"x", "name": "y"'),
        grown("").replace(b'""', b'"\\ud800"'),
        grown("").replace(b'""', b'"\\x"'),
        grown("").replace(b'""', b'"\xff"'),
        grown("").replace(b'""', b'\n\n"x"'),
        grown("").replace(b'""', b'"x" '),
    ],
)
def test_another_chunk_is_not(other: bytes) -> None:
    """It has to be read, whatever it is."""
    template, taken = learned(grown(PIECE), PIECE)
    assert template is not None
    assert not template.append(other)
    assert taken == [PIECE]


@pytest.mark.parametrize(
    ("made", "pieces"),
    [
        (grown(PIECE, PIECE), [PIECE, PIECE]),
        (grown(PIECE), []),
        (grown(PIECE, said=PIECE), [PIECE]),
        (grown("c1"), ["c1"]),
        (grown(PIECE, "x"), [PIECE, "x"]),
        (grown("index"), ["index"]),
        (grown({"a": 1}), ['{"a":1}']),
        (grown("é").replace("é".encode(), b"\\u00e9"), ["é"]),
        (grown("\\u002c ").replace(b"\\\\u", b"\\u"), [", "]),
        (grown("x").replace(b'"arguments"', b'"arguments":"x","arguments"'), ["x"]),
        (b"data: {\n\n", [PIECE]),
        (DONE, ["[DONE]"]),
    ],
    ids=[
        "two calls",
        "none",
        "elsewhere, too",
        "the answer's id",
        "two pieces",
        "a key",
        "a value",
        "escaped",
        "only structure",
        "the same key twice",
        "no JSON",
        "no payload",
    ],
)
def test_from_a_chunk_that_is_not_clear_nothing_is_learned(made: bytes, pieces: list[str]) -> None:
    """Two calls have grown, or none; or the text that was added stands elsewhere, too, or in another form."""
    assert learned(made, *pieces)[0] is None


def test_a_deep_chunk_is_no_trouble() -> None:
    """Some Pythons cannot compare such values: then nothing is learned of it."""
    deep = b"[" * 1000 + b"]" * 1000
    chunks = [grown(PIECE)[:-3] + b', "deep": ' + deep + b"}\n\n" for _ in range(3)]
    (told,) = kept(OPENAI, [*call_of(chunks), chunk({}, "tool_calls"), DONE])
    assert told == [("call_0", "search", 3 * PIECE)]


def test_nor_from_one_that_ends_its_call() -> None:
    """What comes behind it is no piece."""
    assert learned(grown(PIECE), PIECE, closed=True)[0] is None


def test_nor_from_one_that_sets_all_anew() -> None:
    """As ends of items do in Responses."""
    call = OpenCall(0, 0, "call_a", "search")
    before = count_pieces([call])
    call.pieces = [PIECE]
    assert template_of(grown(PIECE), [call], before, EVENTS.payload, GrowingCalls()) is None


class Counted:
    """A format's `payload`, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        self._payload = EVENTS.payload
        monkeypatch.setattr(EVENTS, "payload", self)

    def __call__(self, frame: bytes) -> Any:
        self.read += 1
        return self._payload(frame)


def call_of(pieces: Sequence[bytes], at: int = 0) -> list[bytes]:
    """One call of an answer of several."""
    return [chunk({"tool_calls": [part(f"call_{at}", "", index=at)]}), *pieces]


@pytest.mark.parametrize("size", [1, 4, 0], ids=["a frame a chunk", "four", "cut within frames"])
def test_hardly_anything_of_a_long_call_is_read(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Its beginning, one piece and its end, however long it is."""
    counted = Counted(monkeypatch)
    chunks = [*call_of([grown("x")] * 1000), chunk({}, "tool_calls"), DONE]
    assert kept(OPENAI, recut(chunks, size)) == [[("call_0", "search", "x" * 1000)]]
    assert counted.read < 10


def test_no_more_is_kept_than_the_limit() -> None:
    """Of a call without an end, however its pieces come."""
    made = scene(OPENAI, ladder="observe", max_response_bytes=10_000)
    assembly = Assembly(made.dialect, 1, made.judge.settings, None)
    for one in call_of([grown("x" * 100)] * 1000):
        if not assembly.grows(one):
            assembly.feed(one)
    assert not record_of(assembly).calls
    assert len(assembly.reader.calls[0].arguments) <= 10_000


def test_where_each_chunk_has_a_number_nobody_goes_on_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Responses: each is read, and hardly any is read thrice to see what is like it."""
    counted = Counted(monkeypatch)
    numbered = [grown("x", number=at) for at in range(100)]
    assert kept(OPENAI, [*call_of(numbered), chunk({}, "tool_calls"), DONE]) == [[("call_0", "search", "x" * 100)]]
    assert counted.read <= len(numbered) + 2 * TRIES + 3


def test_the_next_call_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of an answer of so many that it would take long are not."""
    for calls, least, most in ((8, 8, 8 * 8), (2 * MAX_CALLS, MAX_CALLS * 40, 2 * MAX_CALLS * 40)):
        counted = Counted(monkeypatch)
        chunks: list[bytes] = []
        for at in range(calls):
            piece = chunk({"tool_calls": [{"index": at, "function": {"arguments": "1"}}]})
            chunks += call_of([piece] * 40, at)
        (told,) = kept(OPENAI, [*chunks, chunk({}, "tool_calls"), DONE])
        assert [text for _, _, text in told] == ["1" * 40] * calls
        assert least < counted.read < most
