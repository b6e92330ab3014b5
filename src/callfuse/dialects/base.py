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
    """A call that is still being assembled from deltas.

    `index`: its place among the calls (or content blocks) of its choice. `numbered`: the wire has an index for the
    call. `pieces`: the arguments as text so far. `value`: arguments that came whole, as a value; then there are no
    `pieces`. `grown`: the number of characters, so far, of a value that comes piece by piece. `extra`: what the vendor
    added to the call and expects back; replace this object, never change it, because calls share an empty one.
    `name_grows`: the name may continue in a later frame. `namespace`, `kind`: see `ToolCall`.
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
        """Whether the call names a tool. A blank name counts as no name."""
        return bool(self.name) and not self.name.isspace()

    @property
    def arguments(self) -> Any:
        """The arguments: the text so far, or the value."""
        return "".join(self.pieces) if self.value is None else self.value

    def complete(self) -> ToolCall:
        """Return the call as an immutable `ToolCall`."""
        return ToolCall(self.id, self.name, self.arguments, namespace=self.namespace, kind=self.kind)


def has_end(arguments: Any) -> bool:
    """Whether the arguments of the last call, which a limit may have cut off, are complete: a value, or the text of an
    object with its end. Empty arguments do not count: vendors send `{}` if a limit cut off all arguments."""
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
    """One event that a frame causes. `call`: for OPENED and CLOSED; for CUT the incomplete call, if any."""

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
    """Assembles the calls of one answer. Each dialect has its own subclass. `trace`: see `Dialect.reader`."""

    __slots__ = ("calls", "entries")

    calls: list[OpenCall]
    """All calls for the client to execute so far, in order of opening."""
    entries: list[Entry]
    """The parts of calls in the payload read last; empty if the dialect's writer finds them by their own index."""

    def __init__(self, *, trace: bool = False) -> None:
        self.calls = []
        self.entries = []

    def cut_call(self) -> OpenCall | None:
        """Return the last call if it may be incomplete because a limit or a filter ended the answer, else None."""
        last = self.calls[-1] if self.calls else None
        return None if last is None or (last.closed and has_end(last.arguments)) else last

    @abstractmethod
    def read(self, payload: Payload) -> Sequence[Event]:
        """Read a payload and return its events; usually there are none."""

    def end(self) -> Sequence[Event]:
        """Return the events for a frame that ends the answer and has no payload (see `Dialect.is_end`)."""
        return (Event(What.ENDED),)


class Frame(NamedTuple):
    """A held frame: raw bytes, payload (None if it has none or is broken), and the parts of calls in it."""

    raw: bytes
    payload: Payload | None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """What replaces the calls of a choice that loses all of them: a text and a finish reason (None: the default)."""

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
        """Return the frames without the withheld calls, renumbered. `blocks`: by choice, the text and finish reason of
        each choice that loses all its calls."""

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return what the client gets of the held frames before the next answer: no withheld calls, no finish."""

    def break_off(self) -> bytes:
        """Return the events that end texts and reasoning which have begun in the client's stream, if no more of them
        will come; empty if they need no end."""
        return b""

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer. May be called again as long as the client has received none of the last one.

        `foreign`: another model than the client's wrote the answer, so its reasoning is left out.
        """

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite a frame of the next answer for this stream; empty if the client must not see the frame."""

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """End the stream: write the blocks' texts, the finish and the terminal event. `called`: the only choice has no
        block, and the client has calls of it, so the finish reason is that of calls. `cut`: the client has only the
        beginning of this call, so the finish reason is that of a length limit: no client takes the call as complete."""


class AnswerWriter(Writer, Protocol):
    """A dialect's writer. It can also change whole answers, before the client gets any part of them."""

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return a whole answer without the calls at these (choice, call) places. `blocks`: see `thin`."""

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Join two whole answers: the first has lost its calls, the second continues it. `foreign`: see
        `next_answer`."""


class Note(NamedTuple):
    """A text to append to the result of a call in the history. `position`: the position of the call's round."""

    position: int
    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """The calls of one choice of a whole answer. `cut`: a limit or a filter ended the choice."""

    index: int
    calls: tuple[ToolCall, ...]
    cut: bool = False

    @property
    def whole(self) -> int:
        """How many of the calls, counted from the first, are known to be whole."""
        lacks_end = self.cut and bool(self.calls) and not has_end(self.calls[-1].arguments)
        return len(self.calls) - lacks_end

    def complete(self) -> tuple[ToolCall, ...]:
        """Return the calls that are whole and have a name."""
        return tuple(call for call in self.calls[: self.whole] if call.name.strip())


class Request(Protocol):
    """A parsed request and its bytes. Iterators read the history backwards, lazily."""

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
        """Whether the answer must fit a schema; the SDKs would raise an error for plain text in it."""

    def opening(self) -> Iterable[bytes]:
        """Return the texts that identify the conversation: the system prompt and the first user message."""

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """Return the position (-1 if there is none) and the digest of the last message that a person wrote, before
        `end` (None: in the whole history)."""

    def rounds(self) -> Iterator[Round | None]:
        """Yield the rounds with their results, newest first, with None for each message of a person between them."""

    def take_history(self, history: ReadHistory) -> None:
        """Reuse what was read from an earlier request with the same first messages. Only later messages are read, and
        what they show is added to `history` for the next request."""

    def declares(self, name: str) -> bool:
        """Whether the client may have this tool: False only if the request lists all its tools, without this name."""

    @property
    def lists_tools(self) -> bool:
        """Whether the request lists all its tools, so that `declares` can be False."""

    def described_tools(self) -> Iterable[DescribedTool]:
        """Return the tools that the client runs and whose entries have room for a description."""

    def name_results(self) -> Sequence[Edit]:
        """Return the edits that add the tool's name to each result that lacks it; none if the format has no key for
        that name."""

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """Return the body with texts appended to results; all other bytes stay."""

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """Return the body with these turns and replies appended. A forced tool choice is loosened; with `text_only`,
        tools are forbidden. Raises CannotReplay if the vendor would not accept the body."""

    def writer(self, *, usage: str, form: Format | None = None) -> AnswerWriter:
        """Return a writer for the answer to this request. `usage`: the setting, `last` or `sum`. `form`: how the vendor
        streams that answer; None if the answer is whole, or if callfuse itself streams an answer."""

    def own_answer(self, text: str) -> bytes:
        """Return a whole answer that contains only this text of callfuse's own."""

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """Answer a request without asking a model: whole or as a stream, as the client asked."""

    def typed_message(self, at: int) -> TypedMessage | None:
        """Return what a person typed in the message at this position; None if no person wrote the message."""

    def has_result(self, at: int) -> bool:
        """Whether the message at this position has the result of a tool."""

    def speech(self, at: int) -> Utterance:
        """Return what the model says in the message at this position."""

    def sealed_summary(self, at: int) -> str:
        """Return the vendor's encrypted summary of earlier messages at this position; empty if there is none."""

    def append_to_user(self, at: int, text: str) -> Sequence[Edit]:
        """Return the edits that append a text to the user's message at this position; none for other messages."""

    def own_text(self, at: int) -> str | None:
        """Return the text of the assistant message at this position if callfuse wrote it, else an empty text; None for
        other roles."""


class Dialect(Protocol):
    """One vendor format: how its requests and answers are read and written."""

    @property
    def name(self) -> str:
        """The name of the format, as in `docs/dialects.md` and in logs."""

    @property
    def backend(self) -> str:
        """The name of the vendor, for settings and logs."""

    @property
    def usual_path(self) -> str:
        """A path that the dialect serves, for requests that were recorded without their path."""

    @property
    def history_key(self) -> str:
        """The key, in a request's body, of the list to which each request of a conversation appends."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """A frame that keeps the connection open and that the official SDKs ignore; empty if there is none."""

    @property
    def call_mark(self) -> bytes:
        """Bytes that occur in every frame and every whole answer with a call, unless some of their letters are escaped.
        They contain only ASCII letters, underscores and the quotes of a key, so that `may_hide_letters` can be used."""

    @property
    def early_mark(self) -> bytes:
        """Bytes of all frames that name a call before it begins, like `call_mark`; empty if no vendor sends such."""

    @property
    def counts(self) -> TokenCounts:
        """Where the answers of this format have their token counts."""
        ...

    @property
    def repeats(self) -> RepeatFinish:
        """How an answer says that the vendor ended it because the model repeated itself. Its mark is empty if
        `kept_mark` is not."""
        ...

    @property
    def kept_mark(self) -> bytes:
        """Bytes of frames before a call, other than the first frame, that a writer must know to end the answer; empty
        if the writer needs none."""

    def serves(self, path: str) -> bool:
        """Whether a POST to this path may be a request of this dialect."""

    def read_request(self, body: bytes, payload: Any, target: str = "") -> Request | None:
        """Parse a request; return None if the body is not of this dialect. `target`: path and query."""

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return the format in which an answer of this content type is streamed; None if the answer is not streamed or
        cannot be read. `asked`: the request asks for a stream."""

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether a frame does nothing but keep the connection open, and may overtake other frames."""

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the answer."""

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the indexes of the choices in a payload; empty if the payload concerns the whole answer."""

    def reader(self, *, trace: bool = False) -> Reader:
        """Return a reader for one streamed answer. With `trace=False`, `entries`, OPENED and CLOSED may be left out."""

    def model_turn(self, payloads: Sequence[Payload]) -> bytes:
        """Rebuild the model's turn, as an element of the next request's history. Raises CannotReplay."""

    def model_turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """Rebuild the model's turn, as `model_turn` does, from a whole answer."""

    def is_unfinished(self, payloads: Iterable[Payload]) -> bool:
        """Whether a server-side tool of this answer, streamed or whole, still waits for its result."""

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """Return the calls of a whole answer."""

    def said(self, payload: Payload) -> Iterable[SaidPiece]:
        """Yield what the model says in a payload of a stream, or in a whole answer. Accepts values of any type."""

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in the vendor's own format."""

    def recognise(self, value: Any) -> Recorded | None:
        """Read a recorded JSON value; return None if it belongs to another dialect. Never raises, whatever the
        value."""
