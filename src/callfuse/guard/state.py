"""The modes of a guard, and the state of the bytes that wait in it."""

from enum import Enum
from typing import Final, NamedTuple


class Mode(Enum):
    """What a guard does with incoming frames, as `guard.py` describes."""

    FOLLOWING = "following"
    PASSING = "passing"
    SPLICING = "splicing"
    CLOSED = "closed"
    SILENT = "silent"


class GuardState(NamedTuple):
    """The state of a guard.

    `needs_verdict`: the answer waits for its verdict. `holding`: a stream waits after the client got its beginning, so
    it needs heartbeats; never a whole answer. `pending`: the model has been asked again and nothing of its answer has
    left. `held_bytes`: bytes of frames that wait, and of an incomplete frame after them or of a pending answer; of a
    whole answer, all bytes so far. `buffered_bytes`: bytes in memory, also those that have left and may be needed for
    the model's turn. `has_all_left`: no byte waits, not even of an incomplete frame; some may have been dropped.
    """

    needs_verdict: bool
    holding: bool
    pending: bool
    held_bytes: int
    buffered_bytes: int
    has_all_left: bool


NOTHING_WAITS: Final = GuardState(
    needs_verdict=False, holding=False, pending=False, held_bytes=0, buffered_bytes=0, has_all_left=True
)
