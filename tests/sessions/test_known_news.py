"""What is kept of a lane shows that a round is new, so that most of a history need not be read: never wrongly."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.openai_chat.request import ChatRequest
from callfuse.model import Round, Timeline
from callfuse.policy.settings import LoopSettings
from callfuse.sessions.ledger import LaneState
from tests.detect.timelines import call
from tests.sessions.talks import Ids, Lane, by_name, request, talk, without
from tests.support.examples import more_examples

HELLO = "user: Hello."
TOOLS = "abcdefghijklmnop"
KINDS = ["seen"] * 6 + ["unseen", "withheld", "beside", "text", "dropped", "put in", "again", "user", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(TOOLS)), max_size=40)
IDS = st.sampled_from([None, by_name, without])
"""None: those of vendors, each of which comes once."""


@more_examples(5)
@given(steps=STEPS, ids=IDS, window=st.sampled_from([2, 10]), max_rounds=st.sampled_from([10, 128]))
def test_a_round_that_is_called_new_is_new(
    steps: list[tuple[str, str]], ids: Ids | None, window: int, max_rounds: int
) -> None:
    """Whatever the client does, and whatever callfuse has not seen; but where ids tell nothing, rounds that have come
    into a history behind callfuse's back are not told from those that they stand for."""
    settings = LoopSettings(window=window)
    state, parts, dropped = LaneState(), [HELLO], 0
    made: list[str] = []
    for at, (kind, tool) in enumerate(steps):
        if ids and kind in ("unseen", "again", "put in"):
            continue
        drop = slice(1, 1 + 2 * dropped)
        asked = request(*parts, ids=ids or _from(made), drop=drop)
        conversation = talk(asked, state, settings)
        _check(conversation.timeline, settings.reach)
        id_ = ids(len(parts) - 1, tool) if ids else f"id{at}"
        gone = [call("!a", "")] if kind in ("withheld", "beside") else []
        brings = [[*gone, call(tool, id_)]] if kind == "beside" else [gone, [call(tool, id_)]] if gone else []
        if kind == "seen" or brings:
            state = conversation.after(brings or [[call(tool, id_)]], [], 10.0 * at, max_rounds=max_rounds)
        if kind in ("seen", "unseen") or brings:
            parts.append(f"{tool}=x")
            made.append(id_)
        elif kind == "put in":
            parts.insert(1, f"{tool}=x")
            made.insert(0, id_)
        elif kind == "dropped":
            dropped = min(dropped + 1, len(parts) - 1)
        elif kind == "again" and dropped < len(parts) - 1:
            parts.pop()
            made.pop()
        elif kind == "user":
            parts, made, dropped = [f"user: {tool}"], [], 0
        elif kind == "restart":
            state = LaneState()


def _from(made: Sequence[str]) -> Ids:
    return lambda number, _: made[number]


def _check(timeline: Timeline, size: int) -> None:
    newest = timeline.at(0)
    if newest is not None and not timeline.may_return(size):
        before = Timeline([*timeline][1:]).window(size)
        assert newest.signatures.isdisjoint(before)


def test_only_the_newest_round_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy session's next request; without the ledger it takes a window."""
    lane = Lane()
    parts = [HELLO]
    for tool in TOOLS[:14]:
        lane.answer(*parts, brings=[tool])
        parts.append(f"{tool}=x")
    read: list[Round | None] = []
    rounds = ChatRequest.rounds

    def counted(self: ChatRequest) -> Iterator[Round | None]:
        for one in rounds(self):
            read.append(one)
            yield one

    monkeypatch.setattr(ChatRequest, "rounds", counted)
    assert not lane.look(*parts).timeline.may_return(10)
    assert len(read) == 1
    read.clear()
    assert not talk(request(*parts)).timeline.may_return(10)
    assert len(read) > 10


@pytest.mark.parametrize("unseen", [0, 1])
def test_what_the_ledger_lacks_is_read(unseen: int) -> None:
    """A round that callfuse has not seen comes again: its lane says nothing of it."""
    lane = Lane()
    lane.answer(HELLO, brings=["a"])
    parts = [HELLO, "a=x", *["b=x"] * unseen]
    lane.answer(*parts, brings=["c"])
    parts.append("c=x")
    lane.answer(*parts, brings=["b"])
    parts.append("b=x")
    assert lane.look(*parts).timeline.may_return(10) is (unseen == 1)


def _went(parts: Sequence[str], settings: LoopSettings | None = None) -> Lane:
    """A lane after exchanges that have brought these."""
    lane = Lane(settings=settings)
    for at, part in enumerate(parts):
        lane.answer(HELLO, *[f"{one}=x" for one in parts[:at]], brings=[part])
    return lane


def test_a_withheld_call_beside_one_that_is_new() -> None:
    """The client has only the one that is new, but the model has made both."""
    lane = _went(["a", "a"])
    lane.answer(HELLO, "a=x", "a=x", brings=["!a b"])
    assert lane.look(HELLO, "a=x", "a=x", "b=x").timeline.may_return(10)


def test_what_is_ignored_may_change() -> None:
    """What was kept of a call that had an argument more is not what it would be now."""
    lane = _went(["a@", "b", "a"])
    lane.settings = LoopSettings.model_validate({"per_tool": {"a": {"ignore": ["action"]}}})
    assert lane.look(HELLO, "a@=x", "b=x", "a=x").timeline.may_return(10)


def test_a_call_without_a_name_fills_no_window() -> None:
    """What stands before it counts in its place."""
    made = [*"pq", *TOOLS[:9], "p"]
    parts = [HELLO, *[f"{one}=x" for one in made]]
    parts[2] = "=x"  # the first of which the ledger knows
    lane = Lane()
    for at in range(3, len(parts)):
        lane.answer(*parts[:at], brings=[made[at - 1]])
    assert lane.look(*parts).timeline.may_return(10)


def test_a_round_that_has_been_put_in() -> None:
    """All that the ledger has kept stands there as before, only later."""
    made = [*"abcdefghijkl"]
    lane = _went(made)
    parts = [HELLO, *[f"{one}=x" for one in made]]
    ids = [f"id{at}" for at in range(len(made))]
    parts.insert(8, "z=x")
    ids.insert(7, "another")
    state = talk(request(*parts, ids=_from(ids)), lane.state).after([[call("z", "newest")]], [], 1.0, max_rounds=128)
    newest = talk(request(*parts, "z=x", ids=_from([*ids, "newest"])), state)
    assert newest.timeline.may_return(10)
