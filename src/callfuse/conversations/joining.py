"""Join the states of one lane or session that two processes have continued separately.

That happens if a process could not reach the shared store, or if the store has lost its last writes in a failover.
Nothing is lost: rounds, notes and findings of both are kept, each once, and the amounts spent are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from callfuse.conversations.cut_off import MOST as MOST_CUT_OFF
from callfuse.conversations.ledger import KeptRound, LaneState, SessionState
from callfuse.conversations.matching import LEFT
from callfuse.conversations.storms import MOST as MOST_COUNTED
from callfuse.model.spent import Spent
from callfuse.policy.tiers import Overrides

MOST_RAN: Final = 64
"""The most turns with executed commands that are kept of both processes; `commands` keeps fewer."""

T = TypeVar("T")


def joined_lane(there: LaneState, here: LaneState, before: Spent | None) -> LaneState:
    """Return the joined state of a lane that two processes have continued. `before`: the amount spent when they
    separated, None if unknown. The result has the revision of the state `there`, which it may overwrite."""
    newer = here if _last_time(here.rounds) >= _last_time(there.rounds) else there
    cut_off = {(one.turn, one.position, one.id): one for one in (*there.cut_off, *here.cut_off)}
    blocks = here.blocks if here.blocks.time >= there.blocks.time else there.blocks
    told = {one.finding_id: one for one in (*there.told, *here.told)}
    return LaneState(
        _joined_rounds(there.rounds, here.rounds),
        {**there.notes, **here.notes},
        newer.length,
        continuation=newer.continuation,
        session=here.session or there.session,
        blocks=replace(blocks, count=max(there.blocks.count, here.blocks.count)),
        told=tuple(told.values()),
        storm=tuple(sorted({*there.storm, *here.storm}, key=lambda one: one.time))[-MOST_COUNTED:],
        cut_off=tuple(sorted(cut_off.values(), key=lambda one: one.time))[-MOST_CUT_OFF:],
        spent=_joined_spent(there.spent, here.spent, before),
        revision=there.revision,
    )


def joined_session(there: SessionState, here: SessionState, before: SessionState) -> SessionState:
    """Return the joined state of a session: the state `there`, with the changes `here` since the state `before`."""
    return SessionState(
        _joined_overrides(there.overrides, here.overrides, before.overrides),
        _both(there.ran, here.ran)[-MOST_RAN:],
        max(there.reset, here.reset),
        _joined_overrides(there.by_code, here.by_code, before.by_code),
        max(there.released, here.released),
        _both(there.allowed, here.allowed),
        there.revision,
    )


def _joined_rounds(there: Sequence[KeptRound], here: Sequence[KeptRound]) -> tuple[KeptRound, ...]:
    """Return the rounds of both in order of time, only those since the last user message of the newer state. If both
    have a round, the copy with read results is kept."""
    found: dict[Any, KeptRound] = {}
    for one in (*there, *here):
        key = one.turn, one.position, tuple([(call.id, call.signature) for call in one.calls])
        if key not in found or not found[key].has_outcomes:
            found[key] = one
    rounds = sorted(found.values(), key=lambda one: (one.time or 0.0, one.position))
    last = rounds[-1].turn if rounds else b""
    left = [one for one in rounds if one.turn == LEFT]
    return (*left, *[one for one in rounds if one.turn == last and last != LEFT])


def _last_time(rounds: Sequence[KeptRound]) -> float:
    return max([one.time or 0.0 for one in rounds], default=0.0)


def _joined_spent(there: Spent, here: Spent, before: Spent | None) -> Spent:
    """Return the sum of both amounts spent; the larger one if their common part is unknown."""
    if (there.turn, there.until) != (here.turn, here.until):
        return here if here.since >= there.since else there
    if before is None or before.turn != here.turn:
        return max(there, here, key=lambda one: (one.calls, one.tokens))
    return there.plus(
        here._replace(
            calls=here.calls - before.calls,
            tokens=here.tokens - before.tokens,
            estimated=here.estimated - before.estimated,
            money=here.money - before.money,
        )
    )


def _joined_overrides(there: Overrides, here: Overrides, before: Overrides) -> Overrides:
    tools = {
        name: _changed(there.tools.get(name, {}), here.tools.get(name, {}), before.tools.get(name, {}))
        for name in dict.fromkeys([*there.tools, *here.tools])
    }
    values = _changed(there.values, here.values, before.values)
    return Overrides(values, {name: own for name, own in tools.items() if own})


def _changed(there: Mapping[str, Any], here: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values `there`; keys that have changed `here` since `before` have the values from `here`."""
    changed = [key for key in {**before, **here} if here.get(key) != before.get(key)]
    own = {key: here[key] for key in changed if key in here}
    return {key: value for key, value in there.items() if key not in changed} | own


def _both(there: Sequence[T], here: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*there, *here)))
