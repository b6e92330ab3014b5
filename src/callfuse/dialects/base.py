"""The interface between vendor formats and everything else.

A dialect reads requests (messages, rounds with results, tools) and answers (streamed frames and whole bodies), and
writes what takes the place of withheld calls. Only dialects touch vendors' JSON.

For a streamed answer, a `Reader` reports when calls open and close; text and pieces of arguments make no events,
because there is nothing to decide. When callfuse acts, a `Writer` takes over: it knows what the client has seen so far,
and rewrites further frames, of this answer or the next one, as the continuation of that stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from callfuse.dialects.ask_again import AskOptions, Attempt
from callfuse.dialects.continued import ReadHistory
from callfuse.dialects.declared import DescribedTool
from callfuse.dialects.recorded import Recorded
from callfuse.dialects.repeats import RepeatFinish
from callfuse.dialects.said import SaidPiece
from callfuse.dialects.stateful import ChainedRequest
from callfuse.dialects.tokens import TokenCounts
from callfuse.dialects.typed import OwnAnswer, TypedMessage, Utterance
from callfuse.model import Round, ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, NotJSON, Path, loads
from callfuse.wire.values import is_too_much_inside

_NO_PIECES: Final[Any] = ()
_NOTHING: Final[Payload] = {}


class OpenCall:
    """A call while it is assembled from deltas.

    `index`: its place among the calls (or content blocks) of its choice. `numbered`: the wire has an index for it.
    `pieces`: the arguments as text so far. `value`: arguments that came whole, as a value; then there are no `pieces`.
    `grown`: the characters of a value that comes piece by piece, so far. `extra`: what the vendor added to the call and
    wants back; replace it, never change it, as calls share an empty one.
    `name_grows`: the name may go on in a later frame. `namespace`, `kind`: see `ToolCall`.
    """

    __slots__ = (
        "choice",
        "closed",
        "extra",
        "grown",
        "id",
        "index",
        "kind",
        "name",
        "name_grows",
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
        self.grown = 0
        self.name_grows = False
        self.namespace = ""
        self.kind = kind

    @property
    def has_name(self) -> bool:
        """Whether a tool is named. A blank name is none."""
        return bool(self.name) and not self.name.isspace()

    @property
    def arguments(self) -> Any:
        """The text so far, or the value."""
        return "".join(self.pieces) if self.value is None else self.value

    def complete(self) -> ToolCall:
        """The call as an immutable `ToolCall`."""
        return ToolCall(self.id, self.name, self.arguments, namespace=self.namespace, kind=self.kind)


def has_end(arguments: Any) -> bool:
    """Whether arguments, of a last call that a limit may have cut off, are whole: the text of an object with its end,
    or a value. Empty ones are not known to be: vendors give `{}` for arguments that have not come."""
    if not isinstance(arguments, str):
        return bool(arguments)
    if not arguments.rstrip().endswith("}") or is_too_much_inside(arguments):
        return False
    try:
        return isinstance(loads(arguments), dict)
    except NotJSON:
        return False


class What(Enum):
    """Kinds of events in an answer."""

    OPENED = auto()
    """A call has begun. Its tool is known, unless the vendor sends no name."""
    CLOSED = auto()
    """A call is complete."""
    FINISHED = auto()
    """A choice has its finish reason; all its calls are complete."""
    CUT = auto()
    """A choice was ended by a limit or a filter; a last call that lacks its end is not judged."""
    ENDED = auto()
    """The answer is over."""
    BROKE = auto()
    """The stream carries an error or restarts; the answer is not judged."""


class Event(NamedTuple):
    """One event of a frame. `call`: for OPENED and CLOSED; for CUT the incomplete call, if any."""

    what: What
    choice: int = 0
    call: OpenCall | None = None


class Entry(NamedTuple):
    """The place of a part of a call in a payload."""

    path: Path
    call: OpenCall


NO_EVENTS: Final[Sequence[Event]] = ()
"""The events of a payload that opens, closes and ends nothing, as most payloads do."""


class Reader(ABC):
    """Assembles the calls of one answer. Each dialect has its own subclass. `trace`: as in `Dialect.reader`."""

    __slots__ = ("calls", "entries")

    calls: list[OpenCall]
    """All calls for the client to execute so far, in order of opening."""
    entries: list[Entry]
    """The parts of calls in the payload read last; empty if the dialect's writer finds them by an index of their
    own."""

    def __init__(self, *, trace: bool = False) -> None:
        self.calls = []
        self.entries = []

    def cut_call(self) -> OpenCall | None:
        """The last call, where it may lack its end because a limit or a filter has ended the answer."""
        last = self.calls[-1] if self.calls else None
        return None if last is None or (last.closed and has_end(last.arguments)) else last

    @abstractmethod
    def read(self, payload: Payload) -> Sequence[Event]:
        """The events of a payload; usually none."""

    def end(self) -> Sequence[Event]:
        """The events of a frame without payload that ends the answer (`Dialect.is_end`)."""
        return (Event(What.ENDED),)


class Frame(NamedTuple):
    """A held frame: raw bytes, payload (None if it has none or is broken), and the parts of calls in it."""

    raw: bytes
    payload: Payload | None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """What a choice gets that loses all its calls: a text, and a finish reason (None: the dialect's default)."""

    text: str
    finish: str | None = None


class Writer(Protocol):
    """Rewrites frames as the continuation of one client's answer.

    It must know everything that the client has: `note_sent` is called for each frame that leaves unchanged, in order.
    """

    @property
    def may_continue(self) -> bool:
        """Whether another answer can continue what the client has."""

    def note_sent(self, payload: Payload) -> None:
        """Note a payload that the client got unchanged."""

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """The frames without the withheld calls, renumbered. `blocks`, by choice: text and finish of choices that lose
        all calls."""

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The part of the held frames that leaves before the next answer comes: no withheld call, no finish, no end."""

    def break_off(self) -> bytes:
        """The ends of texts and reasoning that the client has seen begin, where nothing more comes of them; empty where
        these need no end."""
        return b""

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer. May be called again if nothing of the last one has left.

        `foreign`: it is from another model than the client's, and its reasoning is left out.
        """

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """A frame of the next answer, rewritten for this stream; empty if the client must not see it."""

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """End the stream: the blocks' texts, the finish, the terminal event. `called`: the client has calls of the only
        choice, which is no block's, so that it ends as with calls. `cut`: the client has the beginning of this call; it
        ends as at the vendor's length limit, so that nobody takes that for a whole one."""


class AnswerWriter(Writer, Protocol):
    """A dialect's writer. It also changes whole answers, of which the client has got nothing."""

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the calls at these (choice, call) places. `blocks`: as in `thin`."""

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Two whole answers as one: the first has lost its calls, the second continues it. `foreign`: as in
        `next_answer`."""


class Note(NamedTuple):
    """A text to append to the result of a call in the history. `position`: that of the call's round."""

    position: int
    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """The calls of one choice of a whole answer. `cut`: a limit or a filter has ended it."""

    index: int
    calls: tuple[ToolCall, ...]
    cut: bool = False

    @property
    def whole(self) -> int:
        """How many of the calls, from the first on, are known to be whole."""
        lacks_end = self.cut and bool(self.calls) and not has_end(self.calls[-1].arguments)
        return len(self.calls) - lacks_end

    def complete(self) -> tuple[ToolCall, ...]:
        """The calls that are complete and have a name."""
        return tuple(call for call in self.calls[: self.whole] if call.name.strip())


class Request(Protocol):
    """A parsed request and its bytes. Iterators read the history backwards, as far as they are consumed."""

    body: bytes
    model: str
    stream: bool
    choices: int
    length: int
    """Number of messages in the history, which is the position of the answer."""
    probe: bool
    """The request has no tools, or a limit of one token; such an exchange is not judged."""

    @property
    def chain(self) -> ChainedRequest | None:
        """The request itself as a `ChainedRequest` if its vendor is stateful, else None."""

    @property
    def structured(self) -> bool:
        """Whether the answer must fit a schema, so that plain text in it would raise in the SDKs."""

    def opening(self) -> Iterable[bytes]:
        """The texts that identify the conversation: the system prompt and the first user message."""

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """The position (-1 if there is none) and the digest of the last message of a person before `end` (None: at
        all)."""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first, with None for each message of a person between them."""

    def take_history(self, history: ReadHistory) -> None:
        """Take what an earlier request with the same first messages has read: only what is behind it is read then, and
        added to it for the next request."""

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name: False only if the request lists all its tools, and not this one."""

    @property
    def lists_tools(self) -> bool:
        """Whether the request lists all its tools, so that `declares` can be False."""

    def described_tools(self) -> Iterable[DescribedTool]:
        """The tools that the client runs and that have room for a description."""

    def name_results(self) -> Sequence[Edit]:
        """The edits that name the tool at each result that lacks its name, in a key that the format has for it; none
        where it has none."""

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts appended to results; every other byte stays."""

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """The body with these turns and replies appended. A forced tool choice is loosened; with `text_only`, tools are
        forbidden. Raises CannotReplay if the vendor would not accept the result."""

    def writer(self, *, usage: str, form: Format | None = None) -> AnswerWriter:
        """A writer for the answer to this request. `usage`: the setting, `last` or `sum`. `form`: how the vendor
        streams that answer; None if it does not, or callfuse streams one of its own."""

    def own_answer(self, text: str) -> bytes:
        """A whole answer with callfuse's own text and nothing else."""

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """The answer to a request that no model sees, whole or as a stream, as the client asked."""

    def typed_message(self, at: int) -> TypedMessage | None:
        """What a person typed in the message at this position; None if it is not a message of a person."""

    def has_result(self, at: int) -> bool:
        """Whether the message at this position has the result of a tool."""

    def speech(self, at: int) -> Utterance:
        """What the model says in the message at this position."""

    def sealed_summary(self, at: int) -> str:
        """The summary of earlier messages, as the vendor has encrypted it, at this position; empty if there is none."""

    def append_to_user(self, at: int, text: str) -> Sequence[Edit]:
        """The edits that append a text to the user's message at this position; none if it is not the user's."""

    def own_text(self, at: int) -> str | None:
        """The text of the assistant message at this position if it is callfuse's own, else empty; None for other
        roles."""


class Dialect(Protocol):
    """One vendor format."""

    @property
    def name(self) -> str:
        """The name of the format, as `docs/dialects.md` and logs have it."""

    @property
    def backend(self) -> str:
        """The name of the vendor, for settings and logs."""

    @property
    def usual_path(self) -> str:
        """A path that it serves, for a request that is recorded without its path."""

    @property
    def history_key(self) -> str:
        """The key of a request's body with the list to which each request of a conversation appends."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """A frame that keeps the connection open and that the official SDKs ignore; empty if there is none."""

    @property
    def call_mark(self) -> bytes:
        """Bytes that occur in every frame and every whole answer with a call, unless letters of them are escaped. They
        hold nothing but ASCII letters, underscores and the quotes of a key, so that `may_hide_letters` tells."""

    @property
    def early_mark(self) -> bytes:
        """As `call_mark`, of every frame that names a call before it begins; empty if no vendor sends such frames."""

    @property
    def counts(self) -> TokenCounts:
        """Where its answers tell how many tokens they took."""
        ...

    @property
    def repeats(self) -> RepeatFinish:
        """How its answers tell that the vendor has ended them because the model repeated itself. Its mark is empty
        where `kept_mark` is not."""
        ...

    @property
    def kept_mark(self) -> bytes:
        """Bytes of the frames before a call, apart from the first one, that a writer must know to end the answer; empty
        if it needs none."""

    def serves(self, path: str) -> bool:
        """Whether a POST to this path may be a request of this dialect."""

    def read_request(self, body: bytes, payload: Any, target: str = "") -> Request | None:
        """The request; None if the body is not of this dialect. `target`: path and query."""

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """The format in which an answer of this content type is streamed; None if it is not, or cannot be read.
        `asked`: the request asks for a stream."""

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether a frame only keeps the connection open and may overtake others."""

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the answer."""

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """The indexes of the choices in a payload; empty if it concerns the whole answer."""

    def reader(self, *, trace: bool = False) -> Reader:
        """A reader for one streamed answer. `trace=False` may leave out `entries`, and OPENED and CLOSED events."""

    def model_turn(self, payloads: Sequence[Payload]) -> bytes:
        """The model's turn, as an element of the next request's history. Raises CannotReplay."""

    def model_turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """As `model_turn`, of a whole answer."""

    def is_unfinished(self, payloads: Iterable[Payload]) -> bool:
        """Whether a server-side tool of this answer, streamed or whole, still waits for its result."""

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of a whole answer."""

    def said(self, payload: Payload) -> Iterable[SaidPiece]:
        """What the model says in a payload of a streamed answer, or in a whole one, whatever its values are."""

    def error_body(self, status: int, message: str) -> bytes:
        """An error in the vendor's own envelope."""

    def recognise(self, value: Any) -> Recorded | None:
        """A recorded JSON value as this dialect reads it; None if it is of another one. Never raises, whatever the
        value."""
