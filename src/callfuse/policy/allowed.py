"""Calls that a person allows in a session: one call in a lane, or every call of a tool.

An allowed call is still found, counted and shown, with the action `allow`, but it is not withheld and gets no warning.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.signature import Signature

MOST: Final = 64
"""The most allowances of a session; the oldest are dropped."""


class Allowance(NamedTuple):
    """One call, or all calls of a tool, that a person has allowed. `tool`: the tool's full name. `signature`: that of
    the call; empty for all calls of the tool. `lane`: the lane's name in logs; empty for the whole session."""

    tool: str
    signature: Signature = b""
    lane: str = ""

    def passes(self, call: ToolCall) -> bool:
        """Whether this allowance applies to a call of its lane."""
        return self.signature == call.signature if self.signature else self.tool == call.full_name


def with_allowance(allowed: Iterable[Allowance], one: Allowance) -> tuple[Allowance, ...]:
    """Return the allowances with one more added; only the newest `MOST` are kept."""
    return (*[other for other in allowed if other != one], one)[-MOST:]


def of_lane(allowed: Iterable[Allowance], lane: str) -> tuple[Allowance, ...]:
    """Return the allowances that apply to a lane: its own, and those of the whole session."""
    return tuple([one for one in allowed if one.lane in ("", lane)])
