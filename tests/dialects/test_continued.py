"""A history that is read on from an earlier request is read as if it were new: rounds, nudges, who spoke last.

Of whatever messages: those of agents, of which any may be gone, stand twice or elsewhere; then a request with the first
of them, and one with the same first ones and others behind.
"""

import json
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.base import Request
from callfuse.dialects.continued import ReadHistory
from callfuse.model import ToolCall
from tests.dialects.reading import read
from tests.support.examples import more_examples
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import every_dialect
from tests.support.model import Call, History, Round, User

IDS = [f"call_{number}" for number in range(6)]
SAID = ("Continue.", "Step 1/50", "Step 2/50", "Look again.", "Look at 3.", "Look at 4.", "<system-reminder>x")

calls = st.builds(
    Call, st.sampled_from(IDS), st.just("search"), st.sampled_from(['{"q": 1}', "{}"]).map(lambda x: (x,))
)
rounds = st.lists(calls, min_size=1, max_size=3, unique_by=lambda call: call.id).flatmap(
    lambda made: st.builds(lambda text: Round(tuple(made), ("found",) * len(made), text), st.sampled_from(["", "So."]))
)
turns = st.lists(st.one_of(rounds, rounds, st.sampled_from(SAID).map(User)), min_size=2, max_size=8)


def told(request: Request) -> list[Any]:
    """All that is read of a history."""
    shown = [
        one and (one.position, [(past.id, past.signature, past.result, past.outcome) for past in one.calls])
        for one in request.rounds()
    ]
    return [shown, [request.last_user_message(end) for end in (None, *range(request.length))]]


@st.composite
def damaged(draw: st.DrawFn, elements: list[Any]) -> list[Any]:
    """A list of which a few elements are gone, stand twice, or elsewhere."""
    found = list(elements)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(found) - 1))
        one = found.pop(at) if draw(st.booleans()) or len(found) > 40 else found[at]
        if draw(st.booleans()) or not found:
            found.insert(draw(st.integers(0, len(found))), one)
    return found


def recalled(known: set[str]) -> Callable[[str], ToolCall | None]:
    """Finds these calls, as a ledger does."""
    return {id_: ToolCall(id_, "search", "", signature=b"known", has_arguments=False) for id_ in known}.get


@every_dialect
@more_examples(2)
@given(data=st.data())
def test_what_is_read_on_is_what_is_read(kit: DialectKit, data: st.DataObject) -> None:
    """Also where the ledger knows calls that the request lacks, or the client has changed its last messages."""
    body = json.loads(kit.request(History((User("Find it."), *data.draw(turns))), stream=True))
    body |= data.draw(st.sampled_from([{}, {}, {"previous_response_id": "one", "previous_interaction_id": "one"}]))
    elements = data.draw(damaged(body[kit.history_key]))
    last: list[Any] = []
    history = ReadHistory()
    turns_seen = [b"none"]
    for _ in range(3):
        shown = elements[: data.draw(st.integers(0, len(elements)))]
        shown += data.draw(st.one_of(st.just([]), damaged(elements)))
        text = json.dumps({**body, kit.history_key: shown}).encode()
        turn = data.draw(st.sampled_from(turns_seen))
        recall = recalled(data.draw(st.sets(st.sampled_from(IDS))))
        on, anew = read(kit, text), read(kit, text)
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(last, shown, strict=False))
        history, last = history.up_to(sum(1 for _ in shared)), shown
        on.take_history(history)
        for one in (on, anew):
            if one.chain is not None:
                one.chain.recall(recall, turn)
        as_new = told(anew)
        assert told(on) == as_new
        turns_seen += [turn for _, turn in as_new[1]]


@pytest.mark.parametrize("kit", [kit for kit in KITS if kit.history_key == "input"], ids=lambda kit: kit.name)
def test_a_chain_is_read_anew(kit: DialectKit) -> None:
    """The ledger knows what was said last in it, which begins no timeline where a harness says it again."""
    shown = [Round((Call(id_, "search", ("{}",)),), ("found",)) for id_ in IDS[:3]]
    body = json.loads(kit.request(History((shown[0], User("Look at 3."), *shown[1:])), stream=True))
    text = json.dumps({**body, "previous_response_id": "one", "previous_interaction_id": "one"}).encode()
    before, on, anew = (read(kit, text) for _ in range(3))
    history = ReadHistory()
    before.take_history(history)
    assert [one is None for one in before.rounds()] == [False, False, True, False]
    on.take_history(history.up_to(on.length))
    for one in (on, anew):
        assert one.chain is not None
        one.chain.recall(recalled(set()), before.last_user_message()[1])
    assert None not in [*on.rounds()]
    assert told(on) == told(anew)
