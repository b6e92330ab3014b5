"""The data for asking a model again after an answer that lost all its calls or was cut off (`Request.ask_again`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from callfuse.model import MARKER, ToolCall


class CannotReplay(ValueError):
    """Raised if the model cannot be asked again, because a turn or request cannot be rebuilt. `part`: the name of that
    part, for the counts."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


class Reply(NamedTuple):
    """A result by callfuse for a withheld call."""

    call: ToolCall
    text: str


LEFT_OUT: Final = f"{MARKER} What was said here is left out: it repeated itself."
"""Replaces a turn that has no text to send back."""


class Attempt(NamedTuple):
    """An answer that lost all its calls: the model's turn, a reply to each call, and the model that wrote it (empty:
    the client's). `said`: the text of an answer without calls that was cut off in the middle; only this text is sent
    back, and the reply answers it."""

    turn: bytes
    replies: Sequence[Reply]
    model: str = ""
    said: str | None = None

    @property
    def spoken(self) -> tuple[str, str]:
        """What is sent back of an answer that was cut off, and the user's message that follows."""
        said = (self.said or "").rstrip()
        return said if said.strip() else LEFT_OUT, "\n\n".join([reply.text for reply in self.replies])


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How to ask a model again.

    `text_only`: it must not call a tool. `model`: the model to ask instead of the client's; empty: the client's.
    Reasoning is never sent to another model than the one that wrote it.
    """

    text_only: bool = False
    model: str = ""
