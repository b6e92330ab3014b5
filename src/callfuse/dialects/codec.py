"""Reads and writes the answers of one exchange, streamed or whole, through one interface.

A whole answer is a stream of one frame. Its codec provides a reader and a writer on top of what the dialect and its
writer do with whole bodies (`read_whole`, `model_turn_of_whole`, `own_answer`; `thin_whole`, `splice_whole`), so that
the guard need not know which of the two it handles.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from callfuse.detect.runaway_call import runs_away
from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import (
    Block,
    Dialect,
    Entry,
    Event,
    Frame,
    OpenCall,
    Reader,
    Request,
    What,
    WholeChoice,
    Writer,
)
from callfuse.dialects.stateful import stateful_vendor
from callfuse.model import ToolCall
from callfuse.wire import WHOLE, Format, Payload
from callfuse.wire.jsontext import BACKSLASH, NotJSON, as_utf8, may_hide_letters

ReadWhole = Callable[[Payload], list[WholeChoice]]


class Codec:
    """Reads and writes streamed answers of one dialect.

    `dialect`: the answers' dialect. `form`: splits answers into frames. `whole`: there is only one frame, the body.
    `is_stateful`: the vendor stores answers under their `answer_id`. `repeat_mark`: see `RepeatFinish`. `other_mark`:
    bytes of frames that must be read although they have no call; empty if there are none.
    """

    whole = False

    def __init__(self, dialect: Dialect, form: Format) -> None:
        self.form = form
        self._call_mark = dialect.call_mark
        self._early_mark = dialect.early_mark
        self.kept_mark = dialect.kept_mark
        self.repeat_mark = dialect.repeats.mark
        self.other_mark = self.kept_mark or self.repeat_mark
        self.dialect = dialect
        self._stateful = stateful_vendor(dialect)
        self.is_stateful = self._stateful is not None

    def names_call(self, chunk: bytes) -> bool:
        """Whether a chunk may have a part of a call, or the id of a call that is still to come."""
        early = self._early_mark
        return self.shows_call(chunk) or (bool(early) and early in chunk)

    def shows_call(self, chunk: bytes) -> bool:
        """Whether a chunk may have a part of a call, also if letters of the mark are escaped."""
        return chunk.find(self._call_mark) >= 0 or (BACKSLASH in chunk and may_hide_letters(chunk))

    def reader(self, *, trace: bool = False) -> Reader:
        """Return a reader for one answer. `trace`: see `Dialect.reader`."""
        return self.dialect.reader(trace=trace)

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the indexes of the choices in a payload; empty if the payload concerns the whole answer."""
        return self.dialect.choices_of(payload)

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether a frame does nothing but keep the connection open, and may overtake other frames."""
        return self.dialect.is_keep_alive(frame, payload)

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the answer."""
        return self.dialect.is_end(frame)

    def answer_id(self, payload: Payload) -> str:
        """Return the id under which the vendor stores the answer; empty if the payload has no id."""
        return self._stateful.answer_id(payload) if self._stateful is not None else ""

    def payloads(self, raw: Sequence[bytes]) -> list[Payload]:
        """Return the payloads in the chunks of an answer, without broken frames."""
        return list(self._payloads(raw))

    def _payloads(self, raw: Iterable[bytes]) -> Iterator[Payload]:
        """Yield what `payloads` returns, and parse each payload only when it is needed."""
        framer = self.form.framer()
        for frame in (*(frame for chunk in raw for frame in framer.feed(chunk)), framer.flush()):
            if b"{" not in frame:  # there may be very many blank lines and comments
                continue
            try:
                payload = self.form.payload(frame)
            except NotJSON:
                continue
            if payload is not None:
                yield payload

    def model_turn(self, raw: Sequence[bytes]) -> bytes:
        """Rebuild the model's turn from the chunks of its answer, as an element of the next request's history. Raises
        CannotReplay."""
        with replaying():
            return self.dialect.model_turn(self.payloads(raw))

    def is_unfinished(self, raw: Sequence[bytes]) -> bool:
        """Whether a server-side tool in these chunks of an answer still waits for its result."""
        return self.dialect.is_unfinished(self._payloads(raw))

    def writer(self, request: Request, *, usage: str) -> Writer:
        """Return a writer that continues the client's answer. `usage`: the setting, `last` or `sum`."""
        return request.writer(usage=usage, form=self.form)


class WholeCodec(Codec):
    """Reads and writes whole answers of one dialect, as streams of one frame. Choices are numbered by their places."""

    whole = True

    def shows_call(self, chunk: bytes) -> bool:
        """Whether a body may have a call. NUL bytes show that it is UTF-16 or UTF-32, which hides the mark."""
        return super().shows_call(chunk) or 0 in chunk

    def reader(self, *, trace: bool = False) -> Reader:
        """Return a reader for one body."""
        return WholeReader(self.dialect.read_whole)

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the indexes of all choices in the body."""
        return range(len(self.dialect.read_whole(payload)))

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Return False: a body is never a keep-alive."""
        return False

    def is_end(self, frame: bytes) -> bool:
        """Return False: a body always has a payload."""
        return False

    def model_turn(self, raw: Sequence[bytes]) -> bytes:
        """Rebuild the model's turn from the body. Raises CannotReplay."""
        with replaying():
            body = as_utf8(b"".join(raw))
            return self.dialect.model_turn_of_whole(body, self.form.payload(body) or {})

    def writer(self, request: Request, *, usage: str) -> Writer:
        """Return a writer for the client's body."""
        return WholeWriter(request, self.dialect.read_whole, usage)


@contextmanager
def replaying() -> Iterator[None]:
    """Turn errors that a malformed answer causes while the model's turn is rebuilt into CannotReplay."""
    try:
        yield
    except CannotReplay:
        raise
    except (AttributeError, LookupError, TypeError, ValueError):
        raise CannotReplay("malformed") from None


def codec_of(dialect: Dialect, form: Format) -> Codec:
    """Return the codec for answers in this format."""
    return (WholeCodec if form is WHOLE else Codec)(dialect, form)


class WholeCall(OpenCall):
    """A call of a whole body. `made`: the call that the dialect has read. `index`: the call's place in its choice."""

    __slots__ = ("made",)

    def __init__(self, choice: int, index: int, made: ToolCall, *, closed: bool) -> None:
        super().__init__(choice, index, made.id, made.name, made.arguments, closed=closed, kind=made.kind)
        self.namespace = made.namespace
        self.made = made

    def complete(self) -> ToolCall:
        """Return the call as the dialect read it."""
        return self.made


class WholeReader(Reader):
    """Reads a whole body and returns, at once, all events that the reader of a stream would return."""

    __slots__ = ("_read_whole",)

    def __init__(self, read_whole: ReadWhole) -> None:
        super().__init__()
        self._read_whole = read_whole

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events of the body: each call opens and closes, each choice finishes, and the answer ends. Calls
        without a name cause no events, nor do calls that may be incomplete, unless their arguments run away."""
        events: list[Event] = []
        choices = self._read_whole(payload)
        for at, choice in enumerate(choices):
            evidence = choice.whole
            for place, made in enumerate(choice.calls):
                is_told = place < evidence or runs_away(made)
                call = WholeCall(at, place, made, closed=is_told and bool(made.name))
                self.calls.append(call)
                self.entries.append(Entry((at, place), call))
                if call.closed:
                    events += (Event(What.OPENED, at, call), Event(What.CLOSED, at, call))
        events += [Event(What.FINISHED, at) for at in range(len(choices) or 1)]
        return (*events, Event(What.ENDED))


class WholeWriter(Writer):
    """Changes a whole body before the client gets any of it. A body in another encoding becomes UTF-8.

    `_taken`: the last body that lost all its calls, with their (choice, call) places. `_first`: that body without them,
    which the next answer continues.
    """

    def __init__(self, request: Request, read_whole: ReadWhole, usage: str) -> None:
        self._request = request
        self._read_whole = read_whole
        self._usage = usage
        self._taken: tuple[bytes, Sequence[tuple[int, int]]] | None = None
        self._first: bytes | None = None
        self._foreign = False

    @property
    def may_continue(self) -> bool:
        """Return True: the client has received nothing yet."""
        return True

    def note_sent(self, payload: Payload) -> None:
        """Do nothing: the client gets nothing before the body."""

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the body without the withheld calls and with the blocks' texts."""
        (frame,) = frames
        return self._thin(as_utf8(frame.raw), _places(withheld), blocks)

    def _thin(self, body: bytes, places: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        return self._request.writer(usage=self._usage).thin_whole(body, places, blocks)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Keep the body for the next answer to continue; return nothing for the client."""
        (frame,) = frames
        self._taken = as_utf8(frame.raw), _places(withheld)
        return b""

    def next_answer(self, *, foreign: bool) -> None:
        """Make the next answer continue the kept body. Raises if the kept body cannot be changed; the next answer is
        then sent alone."""
        self._foreign = foreign
        self._first = None
        if self._taken is not None:
            body, places = self._taken
            self._first = self._thin(body, places, {})

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Join the next answer to those before it. Raises NotJSON if it is not an answer of the dialect."""
        if not self._read_whole(payload or {}):
            raise NotJSON("no answer of the dialect")
        if self._first is None:
            return frame
        writer = self._request.writer(usage=self._usage)
        return writer.splice_whole(self._first, as_utf8(frame), foreign=self._foreign)

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the kept body with the blocks' texts; or an answer of callfuse's own if no body is kept, or on the
        second try after the kept body could not be changed."""
        taken, self._taken = self._taken, None
        if taken is None:
            return self._request.own_answer("\n\n".join(block.text for block in blocks.values()))
        body, places = taken
        return self._thin(body, places, blocks)


def _places(withheld: Iterable[OpenCall]) -> list[tuple[int, int]]:
    """Return the (choice, call) places of a whole body's calls, sorted."""
    return sorted((call.choice, call.index) for call in withheld)
