"""What it takes to ask a model again after an answer that lost all its calls (`Request.ask_again`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from callfuse.model import ToolCall


class CannotReplay(ValueError):
    """The model cannot be asked again, because a turn or request cannot be rebuilt. `part`: which part, for the
    counts."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


class Reply(NamedTuple):
    """A result that callfuse gives for a withheld call."""

    call: ToolCall
    text: str


class Attempt(NamedTuple):
    """An answer that lost all its calls: the model's turn, a reply to each call, and the model that gave it (empty: the
    client's)."""

    turn: bytes
    replies: Sequence[Reply]
    model: str = ""


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How a model is asked again.

    `text_only`: it must not call a tool. `model`: the model to ask instead of the client's; empty: the client's.
    Reasoning is never sent to another model than the one that wrote it.
    """

    text_only: bool = False
    model: str = ""
