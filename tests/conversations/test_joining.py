"""What two have kept of one lane or session while apart: everything of both, each once."""

from callfuse.conversations.joining import joined_lane, joined_session
from callfuse.conversations.ledger import (
    BlockMemory,
    CutOff,
    KeptCall,
    KeptRound,
    LaneState,
    SessionState,
    StormEntry,
    Told,
    next_revision,
    writes_of,
)
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.spent import Spent
from callfuse.policy.allowed import Allowance
from callfuse.policy.tiers import Overrides

OK = Outcome(b"d", OutcomeKind.OK, "x")


def round_of(number: int, turn: bytes = b"t", outcome: Outcome | None = None) -> KeptRound:
    """A round at this place and time."""
    return KeptRound(number, float(number), turn, (KeptCall(f"call_{number}", "f", b"s", outcome),))


def test_the_rounds_of_both() -> None:
    """In the order of their times; a result that one has read is kept."""
    there = LaneState((round_of(1), round_of(2, outcome=OK), round_of(4)), revision="there")
    here = LaneState((round_of(1, outcome=OK), round_of(2), round_of(3)), length=9, revision="here")
    joined = joined_lane(there, here, None)
    assert joined.rounds == (round_of(1, outcome=OK), round_of(2, outcome=OK), round_of(3), round_of(4))
    assert joined.revision == "there"
    assert joined_lane(joined, here, None).rounds == joined.rounds


def test_a_user_message_ends_the_rounds_before_it() -> None:
    """Whichever of the two has seen it."""
    old, new = LaneState((round_of(1), round_of(2))), LaneState((round_of(5, b"new"),), length=6)
    for pair in ((old, new), (new, old)):
        joined = joined_lane(*pair, None)
        assert (joined.rounds, joined.length) == ((round_of(5, b"new"),), 6)


def test_all_else_of_a_lane() -> None:
    """Notes, blocks, what the model was told, what is counted to find storms, calls that were cut off."""
    told, other = Told("1", "repeat", b"s", 1), Told("2", "repeat", b"s", 2)
    there = LaneState(notes={("a", b"s", 0): "one"}, told=(told,), blocks=BlockMemory(3, time=1.0))
    here = LaneState(notes={("b", b"s", 0): "two"}, told=(told, other), blocks=BlockMemory(2, 1, time=2.0), session="s")
    here.storm, there.storm = (StormEntry(b"x", 2.0),), (StormEntry(b"y", 1.0),)
    cut = [CutOff(0, b"t", float(at), f"call_{at}", "f", b"d", 1) for at in range(3)]
    here.cut_off, there.cut_off = (cut[1], cut[2]), (cut[0], cut[1])
    joined = joined_lane(there, here, None)
    assert joined.notes == {("a", b"s", 0): "one", ("b", b"s", 0): "two"}
    assert (joined.told, joined.session) == ((told, other), "s")
    assert joined.blocks == BlockMemory(3, 1, time=2.0)
    assert [one.time for one in joined.storm] == [1.0, 2.0]
    assert joined.cut_off == tuple(cut)


def test_what_was_spent() -> None:
    """What each has spent since they parted is added, and what both had before counts once."""
    before, there, here = Spent(1.0, 2, 20), Spent(1.0, 5, 50), Spent(1.0, 3, 30, warned=True)
    assert joined_lane(LaneState(spent=there), LaneState(spent=here), before).spent == Spent(1.0, 6, 60, warned=True)
    assert joined_lane(LaneState(spent=there), LaneState(spent=here), None).spent == there
    later = Spent(9.0, 1, 10, turn=b"new")
    assert joined_lane(LaneState(spent=there), LaneState(spent=later), before).spent == later


def test_what_a_session_has_set() -> None:
    """What was changed here since they parted holds, and all else that is there."""
    before = SessionState(Overrides({"a": 1, "b": 1, "c": 1}, {"f": {"x": 1}}), (b"0",), 1.0)
    there = SessionState(Overrides({"a": 2, "b": 1, "c": 1}, {"f": {"x": 1}}), (b"0", b"1"), 3.0, revision="there")
    here = SessionState(Overrides({"a": 1, "b": 2}, {"f": {"x": 2}, "g": {"y": 1}}), (b"0", b"2"), 2.0)
    joined = joined_session(there, here, before)
    assert joined.overrides == Overrides({"a": 2, "b": 2}, {"f": {"x": 2}, "g": {"y": 1}})
    assert (joined.ran, joined.reset, joined.revision) == ((b"0", b"1", b"2"), 3.0, "there")
    allowed = SessionState(allowed=(Allowance("f", b"s", ""),))
    assert joined_session(allowed, allowed, SessionState()).allowed == allowed.allowed


def test_revisions_count() -> None:
    """Those of earlier versions, and what is none, do not."""
    first = next_revision("", "0" * 16)
    assert [writes_of(one) for one in (first, next_revision(first, "f" * 16))] == [1, 2]
    assert [writes_of(one) for one in ("", "0123456789abcdef", "x" * 24, "\n")] == [0] * 4
    last = "f" * 24
    assert writes_of(next_revision(last, "0" * 16)) == writes_of(last)
