"""What happened in the demo, as data: entries as they come, and a summary of each run at its end."""

from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """The two runs of the same agent."""

    WITHOUT = "Without callfuse"
    WITH = "With callfuse"


class Kind(Enum):
    """What an entry tells."""

    CALL = "call"
    """A call that reached the agent, with what the tool gave."""
    HELD = "held"
    """A call that was held back in the stream; the agent never sees it."""
    FINDING = "finding"
    """What callfuse logged about it."""
    GUIDANCE = "guidance"
    """What the model was given instead of a result."""
    ANSWER = "answer"
    """The text that the agent ends with."""
    BLOCK = "block"
    """callfuse's text in the place of an answer."""
    LIMIT = "limit"
    """The agent's own limit ended the run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened; `number` counts the calls that the agent ran."""

    side: Side
    kind: Kind
    text: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended, and what it cost."""

    side: Side
    end: Kind
    calls: int
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Both runs."""

    without: Run
    with_callfuse: Run

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """What is compared: its name, without, with."""
        bare, fused = self.without, self.with_callfuse
        return [
            ("tool calls run", bare.calls, fused.calls),
            ("model requests", bare.requests, fused.requests),
            ("tokens billed", bare.tokens, fused.tokens),
        ]


def saving(without: int, with_callfuse: int) -> str:
    """What was saved, in figures: `9 (75 %)`."""
    return f"{without - with_callfuse:,} ({(without - with_callfuse) / max(without, 1):.0%})".replace("%", " %")
