"""Estimate how many bytes of memory the state of a lane or a session takes, so that ledgers can bound them.

An estimate is needed at each write, so it must be cheap: objects count with a fixed size, and texts with their own
size, which Python returns at once.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptCall, KeptRound, LaneState, SessionState

LONGEST_LANE: Final = 8 * 1024 * 1024
"""The most bytes of one lane, about 100 calls in each of 128 rounds. A longer lane keeps its newest rounds."""

_LANE: Final = 900
"""The bytes of a lane's key and state, and of its entry in the ledger."""
_ROUND: Final = 300
_CALL: Final = 200
"""The bytes of a call with its signature, without id and names."""
_OUTCOME: Final = 250
_NOTE: Final = 300
_DIGEST: Final = 64
_TOLD: Final = 400
_SETTING: Final = 150


def size_of_lane(lane: Lane, state: LaneState) -> int:
    """Return about how many bytes a lane takes with its state."""
    known, blocks = state.continuation, state.blocks
    size = _LANE + len(lane.session) + len(lane.agent) + len(known.go_on)
    size += sum([one.size or _size_of_round(one) for one in state.rounds])
    size += sum([_NOTE + key[0].__sizeof__() + text.__sizeof__() for key, text in state.notes.items()])
    size += sum([_NOTE + len(id_) + len(item) for id_, item in known.items.items()])
    size += sum([_DIGEST + len(item) for item in known.unanswered])
    size += _TOLD * len(state.told) + _DIGEST * len(state.storm)
    if state.cut_off:
        size += sum([_NOTE + len(one.id) + len(one.tool) + one.note.__sizeof__() for one in state.cut_off])
    return size + _calls(blocks.calls) + _DIGEST * (len(blocks.turns) + len(blocks.known))


def size_of_session(state: SessionState) -> int:
    """Return about how many bytes a session takes."""
    settings = 0
    for one in (state.overrides, state.by_code):
        settings += len(one.values) + sum([1 + len(own) for own in one.tools.values()])
    allowed = sum([2 * _DIGEST + len(one.tool) + len(one.lane) for one in state.allowed])
    return _LANE + _SETTING * settings + 2 * _DIGEST * len(state.ran) + allowed


def bounded_lane(lane: Lane, state: LaneState) -> tuple[LaneState, int]:
    """Return a lane's state within `LONGEST_LANE`, and its bytes: usually the unchanged state; else with the newest
    rounds that fit; or, if not even one fits, with only its blocks and its session."""
    rounds, spent = state.rounds, state.spent
    while (size := size_of_lane(lane, state)) > LONGEST_LANE:
        if not rounds:
            state = LaneState(length=state.length, session=state.session, blocks=state.blocks, revision=state.revision)
            state.spent = spent
            return state, size_of_lane(lane, state)
        rounds = rounds[(len(rounds) + 1) // 2 :]
        state = replace(state, rounds=rounds)
    return state, size


def _size_of_round(round_: KeptRound) -> int:
    round_.size = _ROUND + _calls(round_.calls)
    return round_.size


def _calls(calls: Iterable[KeptCall]) -> int:
    return sum(
        [
            _CALL + one.id.__sizeof__() + one.name.__sizeof__() + len(one.namespace)
            if one.outcome is None
            else _CALL + _OUTCOME + one.id.__sizeof__() + one.name.__sizeof__() + one.outcome.text.__sizeof__()
            for one in calls
        ]
    )
