"""The seam between vendor formats and everything else.

A dialect reads requests (who speaks, which rounds with which results, which tools), reads answers (streamed frames and
whole bodies), and writes what takes a withheld call's place. Only dialects touch foreign JSON.

Of a streamed answer a `Reader` tells when calls open and close; text and growing arguments tell nothing, for there is
nothing to decide. When callfuse acts, a `Writer` takes over: it knows what the client has seen so far, and turns
further frames, of this answer or of the next one, into the continuation of that one stream.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol, cast

from callfuse.dialects.recorded import Recorded
from callfuse.dialects.typed import OwnAnswer, Typed
from callfuse.model import Round, ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit

_NO_PIECES: Final[Any] = ()
_NOTHING: Final[Payload] = {}


class OpenCall:
    """A call as it is put together from deltas.

    `index` is its place among the calls (or content blocks) of its choice; `numbered` says whether the wire has an
    index for it; `value` holds arguments that came whole, as a value: then there are no `pieces`; `extra` what the
    vendor added to the call and wants back (replaced, never changed: most calls share an empty one); `namespace` and
    `kind` are those of the `ToolCall`.
    """

    __slots__ = (
        "choice",
        "closed",
        "extra",
        "id",
        "index",
        "kind",
        "name",
        "namespace",
        "numbered",
        "pieces",
        "value",
    )

    def __init__(
        self,
        choice: int,
        index: int,
        id: str = "",  # noqa: A002 - the field's name on every wire
        name: str = "",
        value: Any = None,
        closed: bool = False,
        numbered: bool = True,
        kind: str = "",
    ) -> None:
        self.choice = choice
        self.index = index
        self.id = id
        self.name = name
        self.value = value
        self.pieces: list[str] = [] if value is None else _NO_PIECES
        self.closed = closed
        self.numbered = numbered
        self.extra = _NOTHING
        self.namespace = ""
        self.kind = kind

    @property
    def arguments(self) -> Any:
        """The raw text so far, or the value."""
        return "".join(self.pieces) if self.value is None else self.value

    def complete(self) -> ToolCall:
        """The call as a value."""
        return ToolCall(self.id, self.name, self.arguments, namespace=self.namespace, kind=self.kind)


class What(Enum):
    """What a frame says about the calls of an answer."""

    OPENED = auto()
    """A call has begun: its tool is known (or the vendor leaves it out)."""
    CLOSED = auto()
    """A call is complete."""
    FINISHED = auto()
    """A choice has its finish reason; all its calls are complete."""
    CUT = auto()
    """A choice was cut off by a limit or a filter: a call that was still growing is no evidence."""
    ENDED = auto()
    """The answer is over."""
    BROKE = auto()
    """The stream carries an error, or restarts: nothing more can be trusted."""


class Event(NamedTuple):
    """One thing that a frame says, of one call (opened, closed) or one choice."""

    what: What
    choice: int = 0
    call: OpenCall | None = None


class Entry(NamedTuple):
    """Where in a payload a part of a call stands."""

    path: tuple[str | int, ...]
    call: OpenCall


class Reader(Protocol):
    """Assembles the calls of one answer by the rules of its vendors. Each dialect's is a subclass."""

    __slots__ = ()

    calls: list[OpenCall]
    """Every call that the client is to execute, in order of opening."""
    entries: list[Entry]
    """The parts of calls in the payload read last, where these are not told by an index of their own."""

    def read(self, payload: Payload) -> Sequence[Event]:
        """What this payload says; usually nothing."""
        ...

    def end(self) -> Sequence[Event]:
        """What a frame without payload says that ends the answer (`Dialect.is_end`)."""
        return (Event(What.ENDED),)


class Frame(NamedTuple):
    """A frame as the hold keeps it: raw bytes, payload (None where it has none) and the parts of calls in it."""

    raw: bytes
    payload: Payload | None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A choice loses all its calls: the text that takes their place and the finish reason (None: the dialect's own)."""

    text: str
    finish: str | None = None


class Writer(Protocol):
    """Continues one client's stream. Told in order of everything that went out before."""

    @property
    def may_continue(self) -> bool:
        """Whether another answer can go on from what the client has."""
        ...

    def sent(self, payload: Payload) -> None:
        """Note a payload that the client has been given unchanged."""
        ...

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Frames without the withheld calls: what is left is renumbered, blocked choices end with their text."""
        ...

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """What of the held frames goes out before the next answer: no call, no finish, no end."""
        ...

    def next_answer(self, *, foreign: bool) -> None:
        """What is spliced from now on is another answer's; nothing of one that was begun before has gone out.

        `foreign`: another model than the client asked has given it, and its reasoning is left out.
        """
        ...

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """A frame of the next answer as a frame of this stream; nothing where it must not be seen."""
        ...

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The end of the stream where no further answer comes: the text, the finish, the terminal event."""
        ...


class AskError(ValueError):
    """The model cannot be asked again: `part` names what cannot be rebuilt."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


class Reply(NamedTuple):
    """A result that callfuse gives in place of an execution."""

    call: ToolCall
    text: str


class Attempt(NamedTuple):
    """An answer all of whose calls were withheld: the model's turn, a reply to each call, and the other model that has
    given it (empty: the one that the client asked)."""

    turn: bytes
    replies: Sequence[Reply]
    model: str = ""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the model is asked again.

    `text_only`: it must not call a tool. `model`: another model is asked than the client's, where this is not empty; no
    model is sent another one's reasoning.
    """

    text_only: bool = False
    model: str = ""


class Note(NamedTuple):
    """A text to be added to the result of a call: the call as it stands in the history, by its round's position."""

    position: int
    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """The calls of one choice of a whole answer; `cut`: the last of them may lack its end."""

    index: int
    calls: tuple[ToolCall, ...]
    cut: bool = False

    def complete(self) -> tuple[ToolCall, ...]:
        """The calls that are evidence."""
        return tuple(call for call in (self.calls[:-1] if self.cut else self.calls) if call.name)


class Request(Protocol):
    """A request as callfuse reads it. Nothing is copied; the history is read backwards, as far as one looks."""

    body: bytes
    model: str
    stream: bool
    choices: int
    length: int
    """Messages in the history: the position of the answer."""
    probe: bool
    """No tools, or an answer of one token: such an exchange neither counts nor is judged."""

    @property
    def continuing(self) -> "Continuing | None":
        """The request itself, if it is one to a vendor that remembers."""
        ...

    @property
    def structured(self) -> bool:
        """The answer must fit a schema, so a plain text in it would raise in the SDKs."""
        ...

    def opening(self) -> Iterable[bytes]:
        """What tells this conversation from others: the system prompt and the first user message."""
        ...

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` (None: of all) stands (-1: nowhere) and a digest of it."""
        ...

    def rounds(self) -> Iterator[Round | None]:
        """The rounds, newest first; None where a real user message stands between them."""
        ...

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name: False only where the request lists all its tools, and not this."""
        ...

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to results; every other byte stays."""
        ...

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with these turns and the replies to their calls added. A forced tool choice is loosened, or shut
        where only text is wanted. Raises AskError where the vendor could not take it."""
        ...

    def writer(self, *, usage: str) -> Writer:
        """A writer for the stream that answers this request; `usage` is the setting."""
        ...

    def own_answer(self, text: str) -> bytes:
        """A whole answer that is callfuse's own text and nothing else."""
        ...

    def aside(self, text: str) -> OwnAnswer:
        """The same for a request that no model sees, whole or as a stream, as the client asks."""
        ...

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in the message at this place of the history; None where no person speaks."""
        ...

    def own_text(self, at: int) -> str | None:
        """What callfuse says in the message at this place, alone; None where the model does not speak."""
        ...

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the calls at the withheld (choice, call) places."""
        ...

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one: the first has lost its calls, the second goes on from it. `foreign` is that of
        `Writer.next_answer`."""
        ...


@dataclass(frozen=True, slots=True)
class Continuation:
    """In what the vendor's memory of a conversation and the client's have come to differ.

    `items`: items of the client's history by their ids, and what is sent in their place (empty: nothing). `go_on`: the
    id of the answer to go on from, where it is not the one that the client knows. `unanswered`: results, ready to be
    sent, of calls that the vendor knows and the client does not.
    """

    items: Mapping[str, bytes] = field(default_factory=dict)
    go_on: str = ""
    unanswered: tuple[bytes, ...] = ()


AS_ONE: Final = Continuation()
"""They have not."""


class Remembered(NamedTuple):
    """An answer that the vendor may remember: its id, and what its withheld calls are answered with."""

    id: str
    replies: tuple[Reply, ...] = ()


class Remembering(Protocol):
    """A dialect whose vendor remembers its answers. Its requests are `Continuing`."""

    def answer_id(self, payload: Payload) -> str:
        """The id of the answer, by a frame's payload or a whole body; empty where that does not tell it."""
        ...


class Continuing(Protocol):
    """A request to a vendor that remembers: it may carry only what is new, and name items by their ids."""

    @property
    def stored(self) -> bool:
        """Whether the vendor remembers the answer, and the items of answers by their ids."""
        ...

    @property
    def chained(self) -> bool:
        """Whether the vendor has the conversation so far."""
        ...

    @property
    def begins_chain(self) -> bool:
        """Whether a next request may go on from the answer, so that its calls are to be read whatever comes."""
        ...

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """What a next request that goes on from this answer opens with; nothing where its place has another name."""
        ...

    def recall(self, calls: Mapping[str, Callable[[], ToolCall]], turn: bytes) -> None:
        """Know the calls (by id) whose results may come without them, and the user message that they were made for."""
        ...

    def resumed(self, known: Continuation) -> bytes:
        """The body as the vendor can take it."""
        ...

    def continuation(self, known: Continuation, answers: Sequence[Remembered]) -> Continuation:
        """In what the memories differ once these answers have come."""
        ...

    def after_aside(self) -> tuple[bytes, ...]:
        """As `after`, of the answer that is callfuse's own."""
        ...

    def from_aside(self) -> Sequence[Edit]:
        """The edits that make a request which goes on from an answer of callfuse's own go on from nowhere."""
        ...

    def mended(self, body: bytes, error: bytes) -> bytes | None:
        """A body that the vendor has refused with this error, put right; None where it cannot be."""
        ...


class Dialect(Protocol):
    """One vendor format."""

    @property
    def name(self) -> str: ...

    @property
    def backend(self) -> str:
        """The vendor whose format it is."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """A frame that keeps connections open and that the official SDKs ignore."""
        ...

    @property
    def call_mark(self) -> bytes:
        """Bytes that stand in every frame, and every whole answer, that speaks of a call."""
        ...

    @property
    def early_mark(self) -> bytes:
        """Bytes that stand in every frame that names a call before it begins; empty where no vendor does so."""
        ...

    def serves(self, path: str) -> bool:
        """Whether a POST to this path may be a request of this dialect."""
        ...

    def read_request(self, body: bytes, payload: Any, target: str = "") -> Request | None:
        """The request to a path (and query), or None where the body is not of this dialect."""
        ...

    def stream_format(self, content_type: bytes, request: Request) -> Format | None:
        """How an answer with this content type is streamed; None where it is none that can be read in pieces."""
        ...

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether a frame only keeps the connection open and may overtake others."""
        ...

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the answer."""
        ...

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """The choices that a payload speaks of; none where it speaks of the whole answer."""
        ...

    def reader(self, *, trace: bool = False) -> Reader:
        """The assembly of one streamed answer. `trace` keeps `entries`; without it openings and ends may go untold."""
        ...

    def turn(self, payloads: Sequence[Payload]) -> bytes:
        """The model's turn as an element of the next request's history; raises AskError."""
        ...

    def turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """As `turn`, of a whole answer."""
        ...

    def is_unfinished(self, payloads: Sequence[Payload]) -> bool:
        """Whether a server-side tool of this answer, streamed or whole, still waits for its result."""
        ...

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of a whole answer."""
        ...

    def error_body(self, status: int, message: str) -> bytes:
        """An error in the vendor's own envelope."""
        ...

    def recognise(self, value: Any) -> Recorded | None:
        """What a recorded JSON value, which comes without a path, is in this dialect; None where it is of another.
        Values are foreign: whatever the shape, this raises nothing."""
        ...


def remembering(dialect: Dialect) -> Remembering | None:
    """The dialect, if its vendor remembers its answers."""
    return cast(Remembering, dialect) if hasattr(dialect, "answer_id") else None
