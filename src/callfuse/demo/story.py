"""Define the story of the demo as data: entries in order, and a summary of both runs."""

from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """The two runs of the same agent."""

    WITHOUT = "Without callfuse"
    WITH = "With callfuse"


class EntryKind(Enum):
    """Kinds of entries."""

    CALL = "call"
    """A call that the agent ran, with its result."""
    HELD = "held"
    """A call that was held back in the stream, so that the agent does not see it."""
    FINDING = "finding"
    """callfuse's log line about it."""
    GUIDANCE = "guidance"
    """The text that the model got instead of a result."""
    ANSWER = "answer"
    """The text with which the agent ends."""
    BLOCK = "block"
    """callfuse's text instead of an answer."""
    LIMIT = "limit"
    """The agent's own limit ended the run."""


@dataclass(frozen=True, slots=True)
class StoryEntry:
    """One event of the demo. `number`: the calls that the agent had run by then."""

    side: Side
    kind: EntryKind
    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The end and the cost of one run."""

    side: Side
    end: EntryKind
    calls: int
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Both runs."""

    without: RunSummary
    with_callfuse: RunSummary

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """The compared figures, as (name, without, with)."""
        bare, fused = self.without, self.with_callfuse
        return [
            ("tool calls run", bare.calls, fused.calls),
            ("model requests", bare.requests, fused.requests),
            ("tokens billed", bare.tokens, fused.tokens),
        ]


def saving(without: int, with_callfuse: int) -> str:
    """Return the saving as text: `9 (75 %)`."""
    return f"{without - with_callfuse:,} ({(without - with_callfuse) / max(without, 1):.0%})".replace("%", " %")
