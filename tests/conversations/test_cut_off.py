"""What a lane remembers of calls that a limit has cut off: how many in a row, how many at all, whose text."""

from collections.abc import Sequence

import pytest

from callfuse.conversations.cut_off import LONGEST_NOTE, MOST, carriers, going_on, with_answer
from callfuse.conversations.ledger import CutOff, LaneState
from callfuse.detect.truncated import cut_off_key
from callfuse.model import PastCall, Round, ToolCall

TURN = b"turn"
CALL = ToolCall("call_1", "write", '{"path": "a", "text": "b')
KEY = cut_off_key(CALL)


def remembered(
    known: Sequence[CutOff], position: int, *calls: tuple[ToolCall, str], now: float = 0.0
) -> Sequence[CutOff]:
    """What is remembered after an answer with these calls."""
    before = going_on(LaneState(cut_off=tuple(known)), (position, TURN, now), 300)
    return with_answer(known, calls, before, (position, TURN, now), is_round=True)


def count(
    known: Sequence[CutOff], position: int = 99, *, turn: bytes = TURN, now: float = 0.0, released: float = 0
) -> int:
    """In how many answers in a row before this position the call was cut off."""
    return going_on(LaneState(cut_off=tuple(known), released=released), (position, turn, now), 300).get(KEY, 0)


def row(times: int, note: str = "") -> Sequence[CutOff]:
    """So many answers in a row."""
    known: Sequence[CutOff] = ()
    for at in range(times):
        known = remembered(known, 2 * at + 1, (CALL, note), now=float(at))
    return known


def test_a_row() -> None:
    """It grows with each answer at another place, and ends with one that has other calls."""
    assert [count(row(times)) for times in (0, 1, 2, 30)] == [0, 1, 2, 30]
    assert count(remembered(row(3), 5, (CALL, ""))) == 3
    assert count(row(3), 5) == 2
    assert count(remembered(row(3), 9)) == 0
    assert count(remembered(remembered(row(3), 9), 11, (CALL, ""))) == 1
    assert with_answer(row(3), [], {}, (9, TURN, 0.0), is_round=False) == tuple(row(3))


def test_what_ends_it() -> None:
    """Another user message, a pause, and an operator's reset."""
    assert count(row(3), turn=b"other") == 0
    assert (count(row(3), now=302.0), count(row(3), now=303.0)) == (3, 0)
    assert (count(row(3), released=1.0), count(row(3), released=2.0)) == (3, 0)


def test_it_is_bounded() -> None:
    """The newest calls stay, with the right count; ids, names and texts are short."""
    long = ToolCall("i" * 9999, "t" * 9999, "{")
    known = remembered(row(3 * MOST), 9999, (CALL, ""), (long, "n" * (LONGEST_NOTE + 1)))
    assert (len(known), count(known)) == (MOST, 3 * MOST + 1)
    assert max(len(known[-1].id), len(known[-1].tool)) < 300
    assert known[-1].note == ""


@pytest.mark.parametrize(
    ("id_", "tool", "carried"),
    [("call_1", "write", 1), ("", "write", 1), ("call_2", "write", 0), ("call_1", "read", 0)],
)
def test_whose_result_carries_a_text(id_: str, tool: str, carried: int) -> None:
    """That of the same tool at its place, with its id, if there are any."""
    past = PastCall(ToolCall(id_, tool, {"path": "a"}))
    history = [[Round((past,), 5), Round((past,), 4)], [Round((past,), 2)]]
    known = row(3, "Write less.")
    assert [*carriers(known, history)] == [(5, past.call, "Write less.")] * carried
    assert [*carriers(row(3), history)] == []
