"""Track lanes whose state is newer here than in the store, because a write failed or the store lost its last writes.

    ahead.note(lane, before)              # written in memory only
    state = ahead.join(lane, there, here) # the current state, once the store answers again
    ahead.settle(lane)                    # the store has its state

A revision counts how often its lane has been written. So a store with a lower revision than this process has seen has
lost writes, which may happen when a failover makes a replica the master.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from callfuse.conversations.identity import Lane
from callfuse.conversations.joining import joined_lane
from callfuse.conversations.ledger import LaneState, writes_of
from callfuse.model.spent import Spent

MOST: Final = 10_000
"""The most lanes that are known to be ahead. If there are more, the store's state is used for the oldest."""


class LanesAhead:
    """The lanes that are ahead, each with the store's last known revision and budget use (None: not known)."""

    def __init__(self) -> None:
        self._before: OrderedDict[Lane, tuple[str, Spent | None]] = OrderedDict()

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._before

    def note(self, lane: Lane, before: LaneState | None) -> None:
        """Note that a lane was written in memory only. `before`: the last known state in the store."""
        if lane not in self._before:
            self._keep(lane, "" if before is None else before.revision, None if before is None else before.spent)

    def settle(self, lane: Lane) -> None:
        """Note that the store has the current state of a lane."""
        self._before.pop(lane, None)

    def join(self, lane: Lane, there: LaneState, here: LaneState) -> LaneState:
        """Return the state of a lane, joined from the states in the store (`there`) and in this process (`here`). It
        may overwrite the store's state."""
        known = self._before.get(lane)
        if here == LaneState(last_used=here.last_used):  # dropped from memory
            self.settle(lane)
            return there
        if there.revision == here.revision and known is None:
            return there
        if known is None:
            if not _has_gone_back(there, here):
                return there
            known = "", None
        revision, spent = known
        if revision and revision == there.revision:  # no other process has written it
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
    """Whether the store has an earlier state than this process has seen, or a different one instead. States of earlier
    versions of callfuse do not count."""
    writes = writes_of(there.revision)
    return bool(writes) and writes <= writes_of(here.revision) and there.revision != here.revision
