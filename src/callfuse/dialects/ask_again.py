"""What it takes to ask a model again after an answer that lost all its calls, or was cut off (`Request.ask_again`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from callfuse.model import MARKER, ToolCall


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


LEFT_OUT: Final = f"{MARKER} What was said here is left out: it repeated itself."
"""Stands for a turn of which nothing can be sent again."""


class Attempt(NamedTuple):
    """An answer that lost all its calls: the model's turn, a reply to each call, and the model that gave it (empty: the
    client's). `said`: the text of one that was cut off in the middle, without calls, which is all that goes back of it;
    then the reply is to that text."""

    turn: bytes
    replies: Sequence[Reply]
    model: str = ""
    said: str | None = None

    @property
    def spoken(self) -> tuple[str, str]:
        """What goes back of an answer that was cut off, and the user's message behind it."""
        said = (self.said or "").rstrip()
        return said if said.strip() else LEFT_OUT, "\n\n".join([reply.text for reply in self.replies])


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How a model is asked again.

    `text_only`: it must not call a tool. `model`: the model to ask instead of the client's; empty: the client's.
    Reasoning is never sent to another model than the one that wrote it.
    """

    text_only: bool = False
    model: str = ""
