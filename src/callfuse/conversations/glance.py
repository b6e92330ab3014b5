"""Conversations of which a glance tells all: short ones that nobody knows, in which every call is new.

Most answers of most chats are texts. Then nobody asks for rounds, outcomes or places on the ladder, and none are made.
"""

from itertools import combinations, islice
from typing import Final

from callfuse.conversations.ledger import LaneState
from callfuse.dialects.base import Request
from callfuse.policy.settings import LoopSettings

SHORT: Final = 16
"""So many messages are looked through for calls."""


def is_all_new(request: Request, state: LaneState, settings: LoopSettings) -> bool:
    """Whether no call has come twice, in no timeline of the history, and each is of a known tool.

    True is sure; then nothing can be found in what comes next, no result is to carry a text, and nothing is learned.
    """
    few = settings.harmless_if_new
    if not few or state.rounds or state.notes or request.length > SHORT:
        return False
    calls = [*islice(request.calls(), few + 1)]
    if not calls:
        return True
    if len(calls) > few:
        return False
    names = {call.name for call in calls}
    if "" in names or not all(map(request.declares, names)):
        return False
    for one, other in combinations(calls, 2):  # noqa: SIM110 - half the cost of a generator
        if one.name == other.name and one.may_equal(other):
            return False
    return True
