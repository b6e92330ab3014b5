"""What was blocked in a lane is remembered over user messages, however these read."""

import pytest

from callfuse.conversations.blocks import MAX_CALLS, MAX_KNOWN, MAX_TURNS, MUST_WAIT_FROM
from callfuse.conversations.ledger import NO_BLOCKS
from callfuse.conversations.timeline import Conversation
from callfuse.detect import Engine
from tests.conversations.talks import Lane
from tests.detect.timelines import call

TASK = "user: Find the zebra crossing."
SAID = "user: There was no tool call in your answer. Go on."
BLOCKED = "model: [callfuse] Stopped."
LOOP = ("a=x", "a=x")


def finds(conversation: Conversation, word: str = "a") -> bool:
    """Whether a call would be blocked at once, without another chance."""
    engine = Engine(conversation.timeline, conversation.settings)
    finding = engine.judge(call(word))
    assert finding is None or engine.could_fire(word.rstrip("0123456789"))
    return finding is not None and finding.hard


def blocked(*, ids: bool = True, blocks: int = 1) -> tuple[Lane, list[str]]:
    """A lane in which `a` was blocked, and its request: after each block but the last the harness has said something,
    and `a` has run once more where it could."""
    lane = Lane() if ids else Lane(lambda _number, _name: "")
    parts = [TASK, *LOOP]
    lane.answer(*parts, brings=["!!a"])
    for at in range(1, blocks):
        parts += [BLOCKED, SAID]
        if at + 1 < MUST_WAIT_FROM + 1:
            lane.answer(*parts, brings=["a"])
            parts.append("a=x")
        lane.answer(*parts, brings=["!!a"])
    return lane, [*parts, BLOCKED, SAID]


def test_after_a_user_message_it_may_run_once() -> None:
    """It is neither found nor held for then; nor is any other call."""
    lane, parts = blocked()
    assert not finds(lane.look(*parts))
    assert not finds(lane.look(*parts), "b")


@pytest.mark.parametrize(("came", "refused"), [("a=x", True), ("a", True), ("a=y", False), ("a=!x", False)])
def test_what_it_brings_then_decides(came: str, refused: bool) -> None:
    """The same as before: blocked at once. Another outcome: free. One that is not known counts as the same."""
    lane, parts = blocked()
    lane.answer(*parts, brings=["a"])
    assert finds(lane.look(*parts, came)) is refused
    assert not finds(lane.look(*parts, came), "a1")


def test_the_outcome_from_before_is_known_by_whoever_blocks() -> None:
    """Also where it is not that of the newest round, and no ledger had it before."""
    lane = Lane()
    lane.answer(TASK, "a=x", "b=y", "a=x", "b=y", brings=["!!a"])
    parts = (TASK, "a=x", "b=y", "a=x", "b=y", SAID)
    lane.answer(*parts, brings=["a"])
    assert finds(lane.look(*parts, "a=x"))
    assert not finds(lane.look(*parts, "a=z"))


def test_from_the_third_block_on_it_waits_for_a_new_call() -> None:
    """It does not run after a user message; once a new call has been executed it may, once."""
    for blocks in (1, 2):
        lane, parts = blocked(blocks=blocks)
        assert not finds(lane.look(*parts))
    lane, parts = blocked(blocks=3)
    assert lane.state.blocks.count == lane.state.blocks.in_a_row == 3
    assert finds(lane.look(*parts))
    lane.answer(*parts, brings=["!!a"])
    assert finds(lane.look(*parts, SAID))
    lane.answer(*parts, SAID, brings=["c"])
    assert not finds(lane.look(*parts, SAID, "c=z"))
    lane.answer(*parts, SAID, "c=z", brings=["a"])
    assert finds(lane.look(*parts, SAID, "c=z", "a=x"))


def test_what_was_known_before_is_nothing_new() -> None:
    """A call from before the block, and the blocked one itself, do not become new by a user message."""
    lane = Lane()
    parts = [TASK, "b=y", *LOOP]
    lane.answer(*parts, brings=["!!a"])
    for _ in range(2):
        parts.append(SAID)
        for word in ("b=y", "a=x"):
            lane.answer(*parts, brings=[word[0]])
            parts.append(word)
        lane.answer(*parts, brings=["!!a"])
    assert lane.state.blocks.in_a_row == 3
    assert finds(lane.look(*parts, SAID))
    lane.answer(*parts, SAID, brings=["b"])
    assert finds(lane.look(*parts, SAID, "b=y"))
    lane.answer(*parts, SAID, "b=y", brings=["c"])
    assert lane.state.blocks.in_a_row == 0


def test_a_new_call_beside_the_blocked_one_ends_the_row() -> None:
    """The row counts blocks between which nothing new was executed; the lane's blocks are counted on."""
    lane, parts = blocked(blocks=2)
    assert (lane.state.blocks.count, lane.state.blocks.in_a_row) == (2, 2)
    lane.answer(*parts, brings=["!!a c"])
    assert (lane.state.blocks.count, lane.state.blocks.in_a_row) == (3, 0)


def test_being_asked_again_is_one_block() -> None:
    """However often the model was asked in an exchange."""
    lane = Lane()
    lane.answer(TASK, *LOOP, brings=["!a", "!!a"])
    assert (lane.state.blocks.count, lane.state.blocks.in_a_row) == (1, 1)
    lane.answer(TASK, *LOOP, brings=["!a", "c"])
    assert (lane.state.blocks.count, lane.state.blocks.in_a_row) == (1, 0)


@pytest.mark.parametrize("ids", [True, False])
def test_a_retry_is_judged_as_the_first_try(ids: bool) -> None:
    """The same request once more: the block was not taken up, and says nothing of what came before it."""
    lane, parts = blocked(ids=ids)
    for _ in range(3):
        assert not finds(lane.look(*parts[:-2]))
        lane.answer(*parts[:-2], brings=["!!a"])
    lane.answer(*parts, brings=["a"])
    again = [*parts, "a=x"]
    for _ in range(3):
        assert finds(lane.look(*again))
        lane.answer(*again, brings=["!!a"])


@pytest.mark.parametrize("shown", ["whole", "cut", "compacted"])
def test_no_verdict_depends_on_what_the_client_still_shows(shown: str) -> None:
    """The history before the user message may be there, be cut off, or be gone."""
    lane, parts = blocked()
    lane.answer(*parts, brings=["a"])
    drop = {"whole": None, "cut": slice(1, 3), "compacted": slice(1, 5)}[shown]
    assert finds(lane.look(*parts, "a=x", drop=drop))
    assert not finds(lane.look(*parts, "a=y", drop=drop))


def test_without_a_ledger_there_is_no_memory() -> None:
    """A restarted guard, or a replay, judges by the request alone."""
    _, parts = blocked(blocks=3)
    assert not finds(Lane().look(*parts))
    assert not finds(Lane().look(*parts, "a=x"))


def test_a_conversation_that_begins_afresh_has_no_past() -> None:
    """The same task once more: nothing was said by a model yet."""
    lane, _ = blocked(blocks=5)
    fresh = lane.look(TASK)
    assert fresh.evidence.blocks == NO_BLOCKS
    assert not finds(fresh)
    lane.answer(TASK, brings=["a"])
    assert lane.state.blocks == NO_BLOCKS
    assert not finds(lane.look(TASK, "a=x"))


def test_what_is_kept_is_bounded() -> None:
    """Blocked calls, user messages and known signatures, whatever a client sends."""
    lane = Lane()
    for at in range(300):
        lane.answer(TASK, f"user: {at}", f"a{at}=x", brings=[f"!!a{at}"])
    blocks = lane.state.blocks
    assert blocks.count == blocks.in_a_row == 300
    assert len(blocks.calls) <= MAX_CALLS
    assert len(blocks.turns) <= MAX_TURNS
    assert len(blocks.known) <= MAX_KNOWN
