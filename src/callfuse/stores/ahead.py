"""The lanes that this process knows better than the store, which could not be written or has lost its last writes.

    ahead.note(lane, before)              # written in memory only
    state = ahead.join(lane, there, here) # what holds, once the store answers again
    ahead.settle(lane)                    # it has been written to the store

A revision counts how often its lane has been written. So a store that contains an earlier one than this process has
seen has gone back, as the replica that a failover makes the master may.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from callfuse.conversations.identity import Lane
from callfuse.conversations.joining import joined_lane
from callfuse.conversations.ledger import LaneState, writes_of
from callfuse.model.spent import Spent

MOST: Final = 10_000
"""Lanes that are known to be ahead; beyond that, of the oldest the store's word counts."""


class LanesAhead:
    """Of each such lane the revision that the store had, and what was spent by then (None: that is not known)."""

    def __init__(self) -> None:
        self._before: OrderedDict[Lane, tuple[str, Spent | None]] = OrderedDict()

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._before

    def note(self, lane: Lane, before: LaneState | None) -> None:
        """A lane has been written in memory only, which the store had in the state `before`, as far as is known."""
        if lane not in self._before:
            self._keep(lane, "" if before is None else before.revision, None if before is None else before.spent)

    def settle(self, lane: Lane) -> None:
        """The store has all of a lane."""
        self._before.pop(lane, None)

    def join(self, lane: Lane, there: LaneState, here: LaneState) -> LaneState:
        """Return the state of a lane, joined from what is `there`, in the store, and what is `here`, in this process.
        It may be written over what is there."""
        known = self._before.get(lane)
        if here == LaneState(last_used=here.last_used):  # memory has dropped it
            self.settle(lane)
            return there
        if there.revision == here.revision and known is None:
            return there
        if known is None:
            if not _has_gone_back(there, here):
                return there
            known = "", None
        revision, spent = known
        if revision and revision == there.revision:  # nobody else has written it
            state = replace(here, revision=revision)
        else:
            state = joined_lane(there, here, spent)
        self._keep(lane, there.revision, there.spent)
        return state

    def _keep(self, lane: Lane, revision: str, spent: Spent | None) -> None:
        self._before[lane] = revision, spent
        if len(self._before) > MOST:
            self._before.popitem(last=False)


def _has_gone_back(there: LaneState, here: LaneState) -> bool:
    """Whether the store has an earlier state than this process has seen, or another one in its place. Earlier versions
    of callfuse do not count."""
    writes = writes_of(there.revision)
    return bool(writes) and writes <= writes_of(here.revision) and there.revision != here.revision
