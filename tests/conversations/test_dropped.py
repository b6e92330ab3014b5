"""A conversation that has let go of what it read, and its request of its parsed body, say what they would have said."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from callfuse.conversations import looking_back
from callfuse.conversations.conversation import Conversation
from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import notes_for
from callfuse.dialects.base import Request
from callfuse.policy.settings import LoopSettings
from tests.dialects.reading import read
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect
from tests.support.model import Call, History, Round, User

SETTINGS = LoopSettings.model_validate({"mode": "warn", "per_tool": {"lookup": {"ignore": ["at"]}}})


def page(number: int) -> Round:
    """A round of its own; every third fails like the others, and one comes twice."""
    call = Call(f"call_p{number}", "lookup", (f'{{"page": {number % 7}, "at": {number}}}',))
    return Round((call,), ("Error: no such page" if number % 3 else f"page {number}",))


BEFORE = (User("Read it all."), *map(page, range(6)))
HISTORIES = {
    "nothing": (User("Hello."),),
    "a few rounds": BEFORE,
    "more than a window": (*BEFORE, *map(page, range(6, 20))),
    "earlier timelines": (*BEFORE, User("And the others."), *map(page, range(6, 20))),
    "many": (*BEFORE, *map(page, range(6, 50))),
    "a new one after many": (User("Read it all."), *(page(3 * at) for at in range(50)), User("And the others.")),
    "a new one": (*BEFORE, User("And the others.")),
}


def told(rounds: Any) -> list[Any]:
    """Rounds as values."""
    return [
        (one.position, one.time, [(call.id, call.signature, call.outcome, call.place) for call in one.calls])
        for one in rounds
    ]


QUESTIONS: dict[str, Callable[[Conversation], Any]] = {
    "timeline": lambda talk: told(talk.timeline),
    "timelines": lambda talk: [told(rounds) for rounds in looking_back.timelines(talk)],
    "newest": lambda talk: told([one] if (one := talk.timeline.at(0)) else []),
    "hindsight": lambda talk: [(one.position, found) for one, found in looking_back.look_back(talk)[1]],
    "learned": lambda talk: (QUESTIONS["timelines"](talk), notes_for(talk), talk.learned)[2],
    "may fail": lambda talk: talk.may_fail_again(),
    "notes": lambda talk: [(note.position, note.call.id, note.text) for note in notes_for(talk)],
    "state": lambda talk: (told(talk.timeline), talk.after([], [], 9.0, max_rounds=128)),
}


def state_after(kit: DialectKit, turns: Sequence[User | Round], known: int) -> LaneState:
    """What is kept of a lane that has seen so many of these turns."""
    state = LaneState()
    for at in range(known):
        if isinstance(turns[at], Round):
            newest = next(request(kit, turns[: at + 1]).rounds())
            talk = Conversation(request(kit, turns[:at]), state, 1.0, SETTINGS)
            state = talk.after([newest.calls if newest else ()], [], 2.0, max_rounds=128)
    return state


def request(kit: DialectKit, turns: Sequence[User | Round]) -> Request:
    """A request with these turns."""
    return read(kit, ask(kit, History(tuple(turns)), stream=True).body)


@every_dialect
@pytest.mark.parametrize("turns", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("unknown", [0, 1, 5, 100])
def test_nothing_is_lost(kit: DialectKit, turns: Sequence[User | Round], unknown: int) -> None:
    """Whatever is asked before and after, and whatever the ledger knows."""
    state = state_after(kit, turns, max(0, len(turns) - unknown))
    for first in QUESTIONS.values():
        for then in QUESTIONS.values():
            kept, dropped = (Conversation(request(kit, turns), state, 3.0, SETTINGS) for _ in range(2))
            assert first(kept) == first(dropped)
            dropped.drop_read()
            assert then(dropped) == then(kept)
