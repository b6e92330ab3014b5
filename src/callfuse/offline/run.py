"""A recorded run as a value, and what its calls are estimated to cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from callfuse.model import PastCall, Round
from callfuse.wire.jsontext import dumps

CHARACTERS_A_TOKEN: Final = 4
"""English text and code come to about this; a tokenizer would be a model's own, and the runs are of many."""


_SHOWN_KEYS: Final = 8


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent, or as much of it as one history holds.

    `turns`: for each user message that calls came of, their rounds, oldest first. `success`: whether the run did what
    it was to do; None where nobody has said. `known`: the tools that it calls and that were there; None where all
    were, or where the record does not tell.
    """

    id: str
    source: str
    model: str
    success: bool | None
    turns: list[list[Round]]
    known: frozenset[str] | None = None

    def calls(self) -> Iterator[PastCall]:
        """Every call, oldest first."""
        for rounds in self.turns:
            for round_ in rounds:
                yield from round_.calls

    def continuing(self, earlier: "Run") -> "Run":
        """This run, which goes on from an earlier one: what was there then was there when it was called."""
        if self.known is None:
            return self
        then = earlier.known if earlier.known is not None else {call.name for call in earlier.calls()}
        return replace(self, known=self.known | then)


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be read, and where: a file, a line of it (0: all of it), and what is wrong there."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f", line {self.line}" if self.line else ""
        return f"{self.file}{place}: {self.what}"


class BadRecord(ValueError):  # it is a fault of the record that the message names, and never leaves the package
    """A record that is not what its format says it is."""


def tokens(past: PastCall) -> int:
    """An estimate of the tokens of a call and its result, without the prompt that is read anew with every round.

    It is name, arguments and result texts in characters, by `CHARACTERS_A_TOKEN`; images and files count nothing. To be
    asked before anyone has asked for the call's outcome, which lets the result go.
    """
    result = _length(past.result.content) if past.result else 0
    return -(-(len(past.name) + len(past.call.text) + result) // CHARACTERS_A_TOKEN)


def _length(content: Any) -> int:
    """The characters of a result's texts."""
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return sum(len(part) for part in parts if isinstance(part, str))
    return 0 if content is None else len(dumps(content))


def kind_of(value: Any) -> str:
    """What a value is, for a message: never the value itself, which may be of any size."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            keys = ", ".join(str(key)[:40] for key in list(value)[:_SHOWN_KEYS])
            more = ", ..." if len(value) > _SHOWN_KEYS else ""
            return f"an object with the keys {keys}{more}" if value else "an empty object"
