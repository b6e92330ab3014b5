"""Arguments that run away, looked at while they grow: when, of which calls, and by which pieces."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect.runaway import LOOK
from callfuse.dialects.base import Event, OpenCall, What
from callfuse.dialects.gemini.answer import GeminiReader
from callfuse.guard.growing import MOST, GrowingArguments, GrowingCalls
from callfuse.guard.template import ChunkTemplate

TEXT = "Stir it until it is thick. " * 400


def opened(growing: GrowingCalls, *calls: OpenCall) -> None:
    """A frame that opens these calls."""
    growing.read([Event(What.OPENED, 0, call) for call in calls])


def arguments_of(growing: GrowingCalls, call: OpenCall) -> GrowingArguments:
    """What is known of a call that grows."""
    arguments = growing.arguments_of(call.pieces)
    assert arguments is not None
    return arguments


def found_at(pieces: Sequence[str]) -> int:
    """How many characters have come when the call is found, a frame a piece; 0 if it is not."""
    growing, call = GrowingCalls(), OpenCall(0, 0, "call_1", "write")
    opened(growing, call)
    for piece in pieces:
        call.pieces.append(piece)
        if growing.read(()):
            assert [*growing.take()] == [*growing.found] == [call]
            assert growing.take() == []
            return sum(map(len, call.pieces))
    return 0


@given(st.lists(st.integers(0, 3000), max_size=30))
def test_the_frame_that_passes_a_fixed_place_finds_it(cuts: list[int]) -> None:
    """Whatever pieces came before."""
    places = sorted({0, len(TEXT), *[min(sum(cuts[: at + 1]), len(TEXT)) for at in range(len(cuts))]})
    pieces = [TEXT[begin:end] for begin, end in pairwise(places)]
    assert found_at(pieces) == next(place for place in places if place >= 2 * LOOK)


def test_room_is_what_may_come_before_the_next_look() -> None:
    """A template adds no more than that; what is not looked at has any room."""
    growing, call = GrowingCalls(), OpenCall(0, 0, "call_1", "write")
    opened(growing, call)
    assert arguments_of(growing, call).room == LOOK - 1
    template = ChunkTemplate(b'{"a":"', b'"}\n', call.pieces, growing.arguments_of(call.pieces))
    assert template.append(b'{"a":"' + b"x" * (LOOK - 3) + b'"}\n')
    assert not template.append(b'{"a":"xy"}\n{"a":"z"}\n')
    assert template.append(b'{"a":"x"}\n{"a":"y"}\n')
    assert template.room == 0
    assert not growing.read(())
    assert arguments_of(growing, call).room == 0
    assert template.append(b'{"a":"' + b"z" * 10 + b'"}\n')
    assert template.room == arguments_of(growing, call).room == LOOK - 10
    assert not growing.read(())
    assert growing.arguments_of([]) is None


def test_the_frame_that_finds_it_is_read() -> None:
    """A template adds nothing by which a call is found, alone or among others."""
    growing, call = GrowingCalls(), OpenCall(0, 0, "call_1", "write")
    opened(growing, call)
    template = ChunkTemplate(b'{"a":"', b'"}\n', call.pieces, growing.arguments_of(call.pieces))
    frames = [b'{"a":"' + TEXT[at : at + 100].encode() + b'"}\n' for at in range(0, len(TEXT), 100)]
    known = next(at for at, frame in enumerate(frames) if not template.append(frame))
    assert known == 2 * LOOK // 100
    assert not template.append(frames[known])
    assert len(call.pieces) == known
    assert not growing.found
    call.pieces.append(TEXT[100 * known : 100 * known + 100])
    assert growing.read(())


def test_pieces_that_come_once_more() -> None:
    """A vendor's last event may bring all of them: they are read from the beginning."""
    growing, call = GrowingCalls(), OpenCall(0, 0, "call_1", "write")
    opened(growing, call)
    call.pieces.append(TEXT[: LOOK + 100])
    assert not growing.read(())
    call.pieces = [TEXT]
    assert growing.read([Event(What.CLOSED, 0, call)])


@pytest.mark.parametrize("as_value", [False, True])
def test_what_is_not_looked_at_while_it_grows_is_at_its_end(as_value: bool) -> None:
    """Of many calls that grow at once all but the newest ones; values come whole."""
    growing = GrowingCalls()
    first = OpenCall(0, 0, "call_1", "write", {"text": TEXT} if as_value else None)
    opened(growing, first, *[OpenCall(0, at, f"call_{at}", "write") for at in range(1, MOST + 1)])
    if not as_value:
        first.pieces.append(TEXT)
    assert not growing.read(())
    assert growing.read([Event(What.CLOSED, 0, first)])
    assert not growing.read([Event(What.CLOSED, 0, first)])


def test_a_value_that_comes_piece_by_piece() -> None:
    """It is looked at when it has doubled, so that the work is linear."""
    reader, growing = GeminiReader(trace=True), GrowingCalls()

    def part(**function: object) -> bool:
        parts = [{"functionCall": function}]
        return growing.read(reader.read({"candidates": [{"content": {"parts": parts}, "index": 0}]}))

    assert not part(name="write", id="call_1", willContinue=True)
    assert not part(partialArgs=[{"jsonPath": "$.path", "stringValue": "a.txt"}], willContinue=True)
    found_at = 0
    for at in range(0, len(TEXT), 500):
        piece = {"jsonPath": "$.text", "stringValue": TEXT[at : at + 500], "willContinue": True}
        if part(partialArgs=[piece], willContinue=True):
            found_at = at + 500
            break
    assert 2 * LOOK < found_at <= 4 * LOOK + 2000
    [call] = growing.take()
    assert len(call.arguments["text"]) == found_at
