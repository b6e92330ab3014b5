"""Define the values of recorded runs: runs, conversations, labels and faults; and estimate the tokens of a call."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from callfuse.config.wording import format_value
from callfuse.conversations.monologue import EqualAnswers
from callfuse.dialects.base import Request
from callfuse.guard.growing_texts import FoundText
from callfuse.model import PastCall, Round, ToolCall
from callfuse.model.spent import Tokens
from callfuse.wire.jsontext import dumps

CHARACTERS_A_TOKEN: Final = 4
"""A rough average for English text and code. A tokenizer would fit only one model, but the runs are from many."""

_SHOWN_KEYS: Final = 8


class UsedTokens(NamedTuple):
    """The tokens of a recorded answer. `rounds_before`: the number of rounds before it in its run. `has_calls`: the
    answer is itself a round."""

    rounds_before: int
    has_calls: bool
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run of an agent, or the part of it in one history.

    `turns`: one list of rounds for each user message that led to calls, oldest first. `success`: whether the run solved
    its task; None if the record does not show it. `known`: the declared tools, including at least those that it calls;
    None if the record does not list them all. `texts`: runaway texts in recorded answers. `equal`: equal answers in
    words, if they were read. `used`: the tokens of answers whose records have them.
    """

    id: str
    source: str
    model: str
    success: bool | None
    turns: list[list[Round]]
    known: frozenset[str] | None = None
    texts: tuple[FoundText, ...] = ()
    equal: tuple[EqualAnswers, ...] = ()
    used: tuple[UsedTokens, ...] = ()

    def calls(self) -> Iterator[PastCall]:
        """Yield every call, oldest first."""
        for rounds in self.turns:
            for round_ in rounds:
                yield from round_.calls

    def after(self, earlier: "RecordedRun") -> "RecordedRun":
        """Return this run as the continuation of an earlier one, whose called tools count as declared."""
        known, then = self.known, earlier.known
        if known is not None:
            known |= then if then is not None else {call.name for call in earlier.calls()}
        equal = max(self.equal, earlier.equal, key=len)
        return replace(self, known=known, texts=earlier.texts + self.texts, equal=equal, used=earlier.used + self.used)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something unreadable: file, line (from 1; 0: the whole file), and what is wrong."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f", line {self.line}" if self.line else ""
        return f"{self.file}{place}: {self.what}"


class BadRecord(ValueError):  # internal: `Reading` turns it into an `Unreadable`
    """Raised for a record that does not match its format."""


@dataclass(frozen=True, slots=True)
class RunLabel:
    """The data about a run in a record, other than its calls; all values are empty by default.

    `id`: the run's name in reports. `session`: the conversation, if several records may belong to one.
    """

    id: str = ""
    session: str = ""
    source: str = ""
    model: str = ""
    success: bool | None = None


class RecordedConversation(NamedTuple):
    """A conversation, from one of its requests, and the answer if known: its calls, runaway texts, and tokens."""

    label: RunLabel
    request: Request
    answer: tuple[ToolCall, ...] = ()
    texts: tuple[FoundText, ...] = ()
    tokens: Tokens | None = None


def label_of(record: dict[str, Any]) -> RunLabel:
    """Read the label of a record with callfuse's own keys. Raises BadRecord for values of a wrong type."""
    id_ = text_at(record, "id")
    success = record.get("success")
    if success in (0, 1) and not isinstance(success, bool):
        success = bool(success)
    if not isinstance(success, bool | None):
        raise BadRecord(f"success = {format_value(success)}: use true, false or null")
    # With a verdict, an id belongs to a run; without, maybe to a request, and a conversation has many.
    session = text_at(record, "session_id") or text_at(record, "conversation_id")
    session = session or (id_ if success is not None else "")
    return RunLabel(id_ or session, session, text_at(record, "source"), text_at(record, "model"), success)


def text_at(record: dict[str, Any], key: str) -> str:
    """Return the text under a key; empty if there is none. A number is converted. Raises BadRecord for any other
    value."""
    value = record.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str | None):
        raise BadRecord(f"{key} = {format_value(value)}: use a text")
    return value or ""


def estimate_tokens(past: PastCall) -> int:
    """Estimate the tokens of a call and its result, excluding the prompt, which the model reads again in each round.

    Characters of name, arguments and result texts, divided by `CHARACTERS_A_TOKEN`; images and files count 0. Call this
    before reading the call's `outcome`, which drops the result.
    """
    result = _length(past.result[0]) if past.result else 0
    return -(-(len(past.name) + len(past.call.text) + result) // CHARACTERS_A_TOKEN)


def _length(content: Any) -> int:
    """Count the characters of a result's texts."""
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return sum(len(part) for part in parts if isinstance(part, str))
    return 0 if content is None else len(dumps(content))


def kind_of(value: Any) -> str:
    """Describe a value for a message by its type, because its content may be of any size."""
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
