"""What a person lets pass in a session: a call of one lane, or every call of a tool.

It is still found, counted and shown, with the action `allow`, but neither withheld nor warned of.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.signature import Signature

MOST: Final = 64
"""Allowances of a session, the newest ones."""


class Allowance(NamedTuple):
    """`tool`: the tool's full name. `signature`: that of the one call; empty for all of the tool. `lane`: the name that
    the lane has in logs; empty for all of the session."""

    tool: str
    signature: Signature = b""
    lane: str = ""

    def passes(self, call: ToolCall) -> bool:
        """Whether a call of its lane is one of those."""
        return self.signature == call.signature if self.signature else self.tool == call.full_name


def with_allowance(allowed: Iterable[Allowance], one: Allowance) -> tuple[Allowance, ...]:
    """Allowances with one more."""
    return (*[other for other in allowed if other != one], one)[-MOST:]


def of_lane(allowed: Iterable[Allowance], lane: str) -> tuple[Allowance, ...]:
    """Those that are of a lane, or of its whole session."""
    return tuple([one for one in allowed if one.lane in ("", lane)])
