"""Writes the client's answer if callfuse changes it: without withheld calls, with a block's text, or spliced from
several answers of the model.

`Rewriter` owns the dialect's writer, which must know everything that the client has received: the writer is created on
first use, and then gets all frames that have left.
"""

from collections.abc import Callable, Mapping

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import Block, Frame, OpenCall, Request, Writer
from callfuse.dialects.codec import Codec, replaying
from callfuse.guard.cut_text import said_before
from callfuse.guard.growing_texts import FoundText
from callfuse.guard.queue import HoldQueue, KeptBytes
from callfuse.wire import BOM, Payload
from callfuse.wire.jsontext import NotJSON, as_utf8


class Rewriter:
    """The writing half of a guard. Any method may raise what a dialect's writer raises.

    `begin` sets the queue and the kept bytes of each answer. Writing empties that queue.
    """

    def __init__(self, codec: Codec, request: Request, *, usage: str) -> None:
        self._codec = codec
        self._request = request
        self._usage = usage
        self._writer: Writer | None = None
        self._edit: Callable[[bytes], bytes] | None = None
        self._queue = HoldQueue(ordered=codec.form.ordered)
        self._kept = KeptBytes(0, spliced=False)

    @property
    def has_written(self) -> bool:
        """Whether the writer has been used, so that another answer continues what it wrote."""
        return self._writer is not None

    def begin(self, queue: HoldQueue, kept: KeptBytes) -> None:
        """Write from this answer's queue and bytes from now on."""
        self._queue = queue
        self._kept = kept
        self._edit = None

    def tell(self, frame: bytes) -> None:
        """Pass to the writer a frame that leaves unchanged."""
        payload = self._payload(frame)
        if payload is not None:
            self._get_writer().note_sent(payload)

    def splice(self, raw: bytes, payload: Payload | None) -> bytes:
        """Return a frame of a later answer as the client gets it; empty if the client does not get it."""
        writer = self._writer or self._get_writer()
        return writer.splice(raw.removeprefix(BOM), payload)  # a stream may begin with a byte order mark

    def thin(self, withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return what waits, without the withheld calls. `blocks`: as in `Writer.thin`."""
        out = self._get_writer().thin(self._frames(), withheld, blocks)
        self._queue.clear()
        return out

    def cut_short(self, withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return what waits as `thin` does, and end the client's answer before the model has ended it."""
        writer = self._get_writer()
        out = writer.thin(self._frames(), withheld, {})
        self._queue.clear()
        return out + writer.close(blocks, called=not blocks)

    def trim(self, edit: Callable[[bytes], bytes]) -> None:
        """Apply `edit` to the whole answer that waits, before it is written."""
        self._edit = edit

    def stop_saying(self, withheld: set[OpenCall]) -> bytes:
        """Return what waits without the withheld calls, and end the text and the reasoning that have not ended."""
        writer, frames = self._get_writer(), self._frames()
        self._queue.clear()
        return writer.before_asking(frames, withheld) + writer.break_off()

    def end_saying(self, withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return what waits as `stop_saying` does, and end the client's answer."""
        return self.stop_saying(withheld) + self._get_writer().close(blocks, called=not blocks)

    def break_off(self, call: OpenCall, withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """End the client's answer in the middle of a call, as at a length limit. Only waiting text leaves: later calls
        could not be distinguished from this call by their numbers."""
        writer, frames = self._get_writer(), self._frames()
        withheld = withheld.union(self._queue.held)
        self._queue.clear()
        out = writer.before_asking(frames, withheld) if frames else b""
        return out + writer.close(blocks, cut=call)

    def before_asking(self, withheld: set[OpenCall]) -> bytes:
        """Return the part of what waits that leaves before the next answer comes."""
        out = self._get_writer().before_asking(self._frames(), withheld)
        self._queue.clear()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Splice another answer from now on. `foreign`: as in `Writer.next_answer`."""
        self._get_writer().next_answer(foreign=foreign)

    def model_turn(self) -> bytes:
        """Return the model's turn. Raises CannotReplay if it cannot be rebuilt, or no answer can continue this one."""
        if not self._get_writer().may_continue:
            raise CannotReplay("structured text")
        if not self._kept.is_all:
            raise CannotReplay("length")
        return self._codec.model_turn(self._kept.chunks)

    def said_before(self, found: FoundText) -> str:
        """Return what the model has said before a repetition. Raises CannotReplay as `model_turn` does."""
        may_continue = self._get_writer().may_continue
        if not (may_continue and self._kept.is_all):
            raise CannotReplay("length" if may_continue else "structured text")
        with replaying():
            return said_before(found, self._codec.payloads(self._kept.chunks), self._codec.dialect.said)

    def end(self, blocks: Callable[[], Mapping[int, Block]]) -> bytes:
        """End the client's answer with blocks, after the held parts that are not calls. The queue is cleared first, so
        that a second try is without these parts."""
        writer = self._get_writer()
        frames = [] if self._codec.whole else self._frames()
        held = set(self._queue.held)
        self._queue.clear()
        out = writer.before_asking(frames, held) if frames else b""
        return out + writer.break_off() + writer.close(blocks())

    def close(self) -> None:
        """Drop the writer, with its state of the client's answer."""
        self._writer = None

    def _get_writer(self) -> Writer:
        """Return the writer, created on first use."""
        if self._writer is None:
            self._writer = self._codec.writer(self._request, usage=self._usage)
            for payload in self._codec.payloads(self._kept.without(self._queue)):
                self._writer.note_sent(payload)
        return self._writer

    def _frames(self) -> list[Frame]:
        """Return the frames that wait, parsed for the writer."""
        frames = [Frame(raw, self._payload(raw), entries) for raw, entries in self._queue.frames()]
        return [frame._replace(raw=self._edit(as_utf8(frame.raw))) for frame in frames] if self._edit else frames

    def _payload(self, frame: bytes) -> Payload | None:
        """Return the payload of a frame; None if it has none or is broken."""
        try:
            return self._codec.form.payload(frame)
        except NotJSON:
            return None
