"""A dialect-neutral picture of conversations: what goes into a kit, and what a client is found to have seen.

In: nothing. Out: frozen values that every kit can render and that laws can compare. A call's arguments are raw text
in pieces, because the pieces are what a stream delivers; `canonical` is how the tests compare arguments, and it is
deliberately not the product's own code.
"""

import json
from dataclasses import dataclass, field, replace


def canonical(arguments: str) -> str:
    """Arguments with key order and white space taken out; empty means `{}`; what is not JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True, ensure_ascii=False)
    except ValueError:
        return arguments


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, its arguments in the pieces in which a stream brings them."""

    id: str
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        """The arguments as they stand when the call is complete."""
        return "".join(self.pieces)

    @property
    def signature(self) -> tuple[str, str]:
        """What makes two calls the same call."""
        return self.name, canonical(self.arguments)


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the model, in pieces."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model, in pieces, with the vendor's signature over it."""

    pieces: tuple[str, ...]
    signature: str = "c2lnbmVk+/=="

    @property
    def text(self) -> str:
        """The whole reasoning."""
        return "".join(self.pieces)


Item = Text | Thinking | Call
Choice = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Quirks:
    """Ways in which real vendors differ on the wire. A kit ignores what its dialect does not know."""

    newline: str = "\n"
    space: bool = True
    """`data: x` rather than `data:x`."""
    spread: bool = False
    """The JSON of an event is spread over several `data:` lines."""
    spaced: bool = False
    """White space inside the JSON."""
    inline_comment: bool = False
    """A comment line stands inside each event."""
    unterminated: bool = False
    """The last event lacks its blank line."""
    noise: tuple[int, ...] = ()
    """Places (counted in frames, wrapped around) before which a keep-alive stands on its own."""
    nulls: bool = False
    """Fields that do not apply are null rather than absent."""
    whole_calls: bool = False
    """Each call comes whole, in one frame."""
    no_index: bool = False
    repeat_id: bool = False
    """Continuations repeat id and name."""
    empty_id: bool = False
    """Continuations carry an empty id and name."""
    finish_with_last: bool = False
    """The finish reason stands in the last frame of the content."""
    no_finish: bool = False
    """A choice with calls has no finish reason: only the end of the stream tells that they are complete."""
    interleave: bool = False
    """Frames of different choices alternate."""
    custom: bool = False
    """Calls are of custom tools, whose input is a text."""
    details: bool = False
    """A detail of the reasoning has the id of each choice's first call, and comes before it."""
    extras: bool = False
    """Texts come with keys that no SDK knows."""

    @property
    def sdk_reads(self) -> bool:
        """Whether the official SDK puts such a stream together rightly."""
        return not (self.no_index or self.repeat_id or self.custom)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: one tuple of items a choice."""

    choices: tuple[Choice, ...]
    quirks: Quirks = field(default_factory=Quirks)
    usage: bool = True
    tag: str = "first"
    """Goes into the vendor's id, so that a second answer can be told from the first."""

    def calls(self, choice: int = 0) -> tuple[Call, ...]:
        """The calls of one choice, in order."""
        return tuple(item for item in self.choices[choice] if isinstance(item, Call))

    def text(self, choice: int = 0) -> str:
        """The text of one choice."""
        return "".join(item.text for item in self.choices[choice] if isinstance(item, Text))

    def without(self, gone: frozenset[tuple[int, str]]) -> "Answer":
        """The same answer as if the calls with these (choice, id) had never been made."""
        kept = tuple(
            tuple(item for item in items if not (isinstance(item, Call) and (at, item.id) in gone))
            for at, items in enumerate(self.choices)
        )
        return replace(self, choices=kept)


@dataclass(frozen=True, slots=True)
class User:
    """A message of the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the model with calls, and what the client reported for each of them."""

    calls: tuple[Call, ...]
    results: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """A conversation up to the pending answer."""

    turns: tuple[User | Round, ...]
    tools: tuple[str, ...] = ("search", "read_file", "lookup")

    def and_then(self, *turns: User | Round) -> "History":
        """The same conversation, gone on."""
        return replace(self, turns=(*self.turns, *turns))


@dataclass(frozen=True, slots=True)
class Style:
    """How a client happens to write its JSON; none of it may change on the way."""

    spaced: bool = False
    ascii: bool = False
    parts: bool = False
    """Results are lists of text parts rather than strings."""


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call as the client has it at the end."""

    id: str
    name: str
    arguments: str
    """Canonical."""


@dataclass(frozen=True, slots=True)
class View:
    """One choice of an answer as the client has it at the end."""

    text: str
    thinking: str
    calls: tuple[SeenCall, ...]
    finish: str | None


def seen(call: Call) -> SeenCall:
    """What a client has of a call that came through."""
    return SeenCall(call.id, *call.signature)


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a rendered stream and what it is there for."""

    raw: bytes
    kind: str
    """start, open, piece, close, finish, usage, done or noise."""
    choice: int | None = None
    item: int | None = None
