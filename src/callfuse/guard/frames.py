"""Read one answer of the model frame by frame: each frame leaves, waits in the queue, or is dropped.

`guard.py` has the rules and the theory. A frame goes through `_read` (limits), `_splice` and `_follow`. Every failure
there ends in `_fail_before_verdict` (an error) or `_exceed` (a limit): both release what is held, or drop the answer.
`attempt`, or the caller of `feed`, catches all other exceptions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.dialects.base import Entry, Event, What
from callfuse.dialects.codec import Codec
from callfuse.guard.acting import Blocks, VerdictActions
from callfuse.guard.assembly import Assembly
from callfuse.guard.calls import AnswerCalls
from callfuse.guard.growing_texts import GrowingTexts
from callfuse.guard.hold import Input
from callfuse.guard.queue import HoldQueue, KeptBytes, Trace
from callfuse.guard.rewriter import Rewriter
from callfuse.guard.state import Mode
from callfuse.guard.steer_loop import SteerLoop
from callfuse.guard.unread import Unread
from callfuse.wire import NotFramed, Payload
from callfuse.wire.jsontext import NotJSON, UnreadableJSON

T = TypeVar("T")
MOST_CHOICES: Final = 128
"""The most choices of an answer, as for OpenAI's `n`; each has a hold. With more, the answer is released."""
MAX_CAUSE: Final = 500
"""The most characters of an error's message that are logged: it may quote a whole answer."""
_BROKEN_FRAME: Final = "malformed frame"
_BROKEN_STREAM: Final = "malformed stream"
_UNREADABLE: Final = "unreadable JSON"
_TOO_WIDE: Final = "choices"
_READS: Final = (Mode.FOLLOWING, Mode.SPLICING, Mode.CLOSED)
"""The modes in which frames are read one by one."""


class AnswerFrames:
    """Processes the frames of one answer. Errors within `run` and `attempt` are recorded, not raised.

    `mode`: what happens to incoming frames. `unread`: the frames that are not processed yet; `queue`: those that wait;
    `kept`: all frames of the answer so far. `calls`: the calls of the answer; `acts` carries out the verdicts on them.
    `texts` searches what the model says for repetition.
    """

    __slots__ = (
        "_codec",
        "_continues",
        "_loop",
        "_parts",
        "_record",
        "_rewriter",
        "_trace",
        "acts",
        "calls",
        "kept",
        "mode",
        "queue",
        "texts",
        "unread",
    )

    def __init__(self, codec: Codec, loop: SteerLoop, rewriter: Rewriter, trace: Trace | None) -> None:
        form, record, continues = codec.form, loop.record, rewriter.has_written
        tell = rewriter.tell if continues else None
        self._codec = codec
        self._continues = continues
        self._loop = loop
        self._parts: tuple[Sequence[Entry], Sequence[int]] = ((), ())
        self._record = record
        self._rewriter = rewriter
        self._trace = trace
        self.unread = Unread(form.framer())
        self.queue = HoldQueue(ordered=form.ordered, in_turn=record.choices > 1, tell=tell, trace=trace)
        self.calls = AnswerCalls(codec.reader(trace=True), loop.judge, self.queue, form.payload)
        self.kept = KeptBytes(loop.judge.settings.max_response_bytes, spliced=continues)
        rewriter.begin(self.queue, self.kept)
        self.acts = VerdictActions(codec, loop, rewriter, self.queue, self.calls, self.kept)
        self.texts = GrowingTexts(loop.judge.settings, whole=codec.whole)
        self.mode = Mode.FOLLOWING

    def adopt(self, assembly: Assembly) -> bytes:
        """Take over an answer from `assembly`, at the frame that opens a suspect call."""
        sent, unread = assembly.sent, Unread(assembly.framer)
        if sent is None or sent.opening is None:
            raise LookupError("no call of the answer is suspect")
        self.unread, self.texts = unread, assembly.texts
        unread.frames += assembly.rest
        raw, payload, events, entries = sent.opening
        unread.at_work = raw
        for frame in sent.before:
            self.kept.add(frame)
        self.calls.adopt(assembly.reader, assembly.ending, events, sent.growing)
        self.kept.add(raw)
        self._process(raw, events, entries, self._codec.choices_of(payload))
        unread.at_work = None
        return self.read_on()

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Run `work`; if it raises, record the cause and return None. This is the guard's only boundary; errors in
        `feed` are raised to its caller, which catches once per chunk."""
        with Boundary() as boundary:
            return work()
        self._record.fail(boundary.cause[:MAX_CAUSE])
        return None

    def run(self, work: Callable[[], bytes], behind: Callable[[], bytes] | None = None) -> bytes:
        """Return the bytes that `work` returns. If `work` raises, continue with `behind` (default: `work`)."""
        out = self.attempt(work)
        return self._recover(behind or work) if out is None else out

    def _recover(self, go_on: Callable[[], bytes]) -> bytes:
        """Return the bytes that leave after an error. If a frame has caused the error, end the hold and continue with
        `go_on` after that frame; else release everything that has not left."""
        out: bytes | None = None
        while out is None and (frame := self.unread.at_work) is not None:
            self.unread.at_work = None
            out = self.attempt(partial(self._skip_failed, frame, go_on))
        return self._salvage() if out is None else out

    def _skip_failed(self, frame: bytes, go_on: Callable[[], bytes]) -> bytes:
        """End the hold at a frame that cannot be processed, then continue after it."""
        self._fail_before_verdict(frame)
        if self._loop.asked:
            self._commit()
        return go_on()

    def enter(self, mode: Mode) -> None:
        """Enter a mode: it decides what happens to frames from now on."""
        if self._trace is not None and mode is not self.mode:
            self._trace(f"answer: {self.mode.name} -> {mode.name}, {self.queue.size} bytes waiting")
        self.mode = mode

    def pass_rest(self) -> None:
        """End the holds: the rest of this answer leaves unread."""
        self.enter(Mode.SPLICING if self._continues else Mode.PASSING)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return the bytes that may leave now. If this raises, `recover` returns what leaves."""
        unread, queue, mark = self.unread, self.queue, self._codec.repeat_mark
        unread.chunk, unread.is_new = chunk, True
        if len(chunk) > self.texts.room or (mark and mark in chunk) or not self._reads_at_once(chunk):
            out = self.read_on()
        elif queue.size:
            entries, choices = self._parts
            unread.at_work, unread.chunk = chunk, b""
            self.kept.add(chunk)
            self.texts.room -= len(chunk)
            self.calls.prefixes.compare(choices)
            queue.put(chunk, choices, entries)
            unread.at_work = None
            out = queue.drain() if queue.ready else b""
        else:
            self.kept.add(chunk)
            self.texts.room -= len(chunk)
            unread.chunk, out = b"", chunk
        unread.is_new = False
        return out

    def recover(self, failed: Boundary) -> bytes:
        """Return what leaves after `feed` has raised. Raise the error again if no chunk was being processed."""
        if failed.error is not None and not self.unread.is_new:
            raise failed.error
        self.unread.is_new = False
        self._record.fail(failed.cause[:MAX_CAUSE])
        return self._recover(self.read_on)

    def _reads_at_once(self, chunk: bytes) -> bool:
        """Read a chunk without splitting it, if possible; return False if it must be split. Before any call: whole
        frames without a call. Later: frames that only add pieces to a call (a single frame while the call waits).

        Only within the limits, and not with several choices, whose beginnings must be noted; nor in an answer that
        continues another, or that is pending."""
        queue, kept, unread = self.queue, self.kept, self.unread
        if self._record.choices != 1 or self._continues or self._loop.asked or unread.frames or not unread.framer.empty:
            return False
        if queue.to_judge or kept.size + len(chunk) > kept.limit:
            return False
        if queue.size or self.calls.any:
            fits = not queue.size or queue.size + len(chunk) <= self._loop.judge.settings.max_held_bytes
            template = self.calls.finder.template if fits and self.mode is Mode.FOLLOWING else None
            return template is not None and template.append(chunk, once=queue.size > 0)
        return not self._codec.names_call(chunk) and chunk.endswith(self._codec.form.frame_end)

    def read_on(self) -> bytes:
        """Read what has come, up to the end of an answer that needs a verdict; return what may leave."""
        unread, queue = self.unread, self.queue
        if unread.chunk:
            unread.frames += unread.framer.feed(unread.chunk)
            unread.chunk = b""
        self._read_frames()
        waiting = unread.framer.waiting
        if waiting and self.mode in _READS and not queue.to_judge and (cause := self._limit(waiting)):
            self._exceed(cause)
        return self._leave() if queue.ready or self.mode not in _READS else b""

    def _read_frames(self) -> None:
        unread, frames = self.unread, self.unread.frames
        while frames and self.mode in _READS and not self.queue.to_judge:
            raw = frames.popleft()
            unread.at_work = b"" if self._continues else raw
            if frames and raw.isspace() and not (self._continues or self._loop.asked or self._limit(len(raw))):
                self._take_blanks(raw)
            else:
                self._read(raw)
            unread.at_work = None

    def _take_blanks(self, first: bytes) -> None:
        """Take a run of blank frames at once, as far as the limits allow: a stream may have one in every byte or two.

        All frames of a run are of one kind: equal to the first, or each a single byte between two elements."""
        unread, run, size = self.unread.frames, [first], len(first)
        is_byte = size == 1
        while unread and (unread[0] == first or (is_byte and len(unread[0]) == 1 and unread[0].isspace())):
            if self._limit(size + len(unread[0])):
                break
            run.append(unread.popleft())
            size += len(run[-1])
        blanks = b"".join(run)
        self.kept.add(blanks)
        self.texts.room -= len(blanks)
        if self.mode is Mode.CLOSED:
            self.queue.send((blanks,))
        elif self._codec.is_keep_alive(first, None):
            self.queue.keep_alive(blanks)
        else:
            self.queue.put(blanks)

    def _leave(self) -> bytes:
        """Take the bytes that may leave."""
        if self.mode is Mode.PASSING:
            self.queue.bypass(self.unread.take())
        elif self.mode is Mode.SILENT:
            self.unread.take()
        return self.queue.drain()

    def _limit(self, size: int) -> str:
        """Return the setting that `size` more bytes, of a complete or incomplete frame, exceed; empty if there is none.

        An incomplete frame counts like a complete one, so that chunk borders do not matter: as held bytes only after
        others, else as bytes of the answer. In the modes SPLICING and CLOSED only the frame itself must fit."""
        settings, queue = self._loop.judge.settings, self.queue
        if self.mode in (Mode.SPLICING, Mode.CLOSED):
            return "max_response_bytes" if size > settings.max_response_bytes else ""
        if queue.size and queue.size + size > settings.max_held_bytes:
            return "max_held_bytes"
        return "max_response_bytes" if self.kept.size + size > self.kept.limit else ""

    def _exceed(self, cause: str) -> None:
        """Release what waits, or drop a pending answer, because a limit is exceeded."""
        if self._drops_answer:
            self.enter(Mode.SILENT)
            return
        self._record.fail(cause)
        if self.mode is Mode.SPLICING:
            self.enter(Mode.PASSING)
        else:
            self._let_go()

    def give_way(self, cause: str) -> bytes:
        """Release what waits, or drop a pending answer, because a limit outside this answer is exceeded."""
        if self.mode is Mode.FOLLOWING:
            self._exceed(cause)
        return self._leave()

    def finish(self) -> bytes:
        """Process the end of the body; return what may leave."""
        if rest := self.unread.framer.flush():
            self.queue.begin_last()  # it has no end: bytes after it would be read as its continuation
            self.unread.frames.append(rest)
        self._read_frames()
        calls = self.calls
        if not calls.over and self.mode is not Mode.SILENT and (not self._drops_answer or calls.would_complete):
            calls.end()
            self._commit()
        return self._leave()

    def cut(self) -> bytes:
        """Release everything unchanged, because the body has broken off."""
        if not self.calls.over:
            self.calls.end(complete=False)
        self.queue.bypass(self.unread.take())
        return self.queue.drain()

    def fail(self) -> bytes:
        """Release what waits, because something outside this answer has failed."""
        if self.mode is Mode.FOLLOWING:
            self._let_go()
        return self._leave()

    def _salvage(self) -> bytes:
        """Return everything that has not left, after the usual release failed. The writer may not get these frames."""
        if self._drops_answer:
            self.enter(Mode.SILENT)
            return b""
        if self._loop.judge.settings.fail_closed and self.mode is Mode.FOLLOWING:
            return self.queue.drain() + self.end_unjudged()
        self.attempt(self.queue.open)
        self.pass_rest()
        self.queue.bypass(self.unread.take())
        return self.queue.drain()

    def _commit(self) -> None:
        """Stop asking the model once part of an answer has left or the answer has ended: none can replace it then."""
        if self.queue.spoke or (self.calls.complete and not self.queue.to_judge):
            self._loop.stop_asking()

    def _read(self, raw: bytes) -> None:
        """Process a frame. Beyond the limits release everything, including this frame. After an error, `_recover` ends
        the hold and continues after the frame at fault, `unread.at_work`."""
        queue = self.queue
        while self.mode in _READS and (cause := self._limit(len(raw))):  # once for each mode, as for a frame in pieces
            self._exceed(cause)
        if self.mode is Mode.PASSING:
            queue.bypass(raw)
        if self.mode not in _READS:
            return
        self.kept.add(raw)
        self.texts.room -= len(raw)
        template = None if self._continues or self.mode is not Mode.FOLLOWING else self.calls.finder.template
        if template is not None and template.append(raw):
            self._process(raw, (), *self._parts)
        else:
            frame, payload, broken = self._splice(raw)
            self.unread.at_work = frame
            self._follow(frame, payload, broken)
        if self._loop.asked and (queue.spoke or self.calls.complete):
            self._commit()
        is_long = queue.size > self._loop.judge.settings.max_held_bytes
        if is_long and self.mode is Mode.FOLLOWING and not queue.to_judge:
            self._exceed("max_held_bytes")  # the first frame that waits is too long by itself

    def _fail_before_verdict(self, at_fault: bytes, cause: str = "") -> None:
        """Release everything, or drop a pending answer, after an error before the verdict. The driver calls `escalate`
        when the app has ended the dropped answer."""
        if self._drops_answer:
            self.enter(Mode.SILENT)
            return
        if cause:
            self._record.fail(cause)
        self._let_go(at_fault)

    @property
    def _drops_answer(self) -> bool:
        """Whether an error drops the rest of the answer instead of releasing it: callfuse asked for the answer and
        nothing of it has left, or the rest comes after the end of an answer that has lost calls."""
        return self.mode is Mode.CLOSED or (bool(self._loop.asked) and not self.queue.spoke)

    def _splice(self, raw: bytes) -> tuple[bytes, Payload | None, str]:
        """Return a frame as the client gets it (empty: not at all), its payload, and the cause if it is broken."""
        payload_of = self._codec.form.payload
        try:
            payload = payload_of(raw)
            if payload is not None and self._says_more(raw):
                self.acts.look(self.texts, payload)
            if not self._continues:
                return raw, payload, ""
            raw = self._rewriter.splice(raw, payload)
            return raw, payload_of(raw) if raw else None, ""
        except NotFramed:
            return raw, None, _BROKEN_STREAM
        except UnreadableJSON:
            return raw, None, _UNREADABLE
        except NotJSON:
            return raw, None, _BROKEN_FRAME

    def _says_more(self, raw: bytes) -> bool:
        """Whether the text of a frame must be searched for repetition."""
        mark = self._codec.repeat_mark
        return self.mode is Mode.FOLLOWING and (self.texts.room < 0 or (bool(mark) and mark in raw))

    def _follow(self, raw: bytes, payload: Payload | None, broken: str) -> None:
        """Process the events of a frame, then send, queue or drop it."""
        queue, calls, codec = self.queue, self.calls, self._codec
        if broken:
            self._pass_broken(raw, broken)
        elif self.mode is not Mode.FOLLOWING:
            if self.mode is Mode.SPLICING or not codec.names_call(raw):
                queue.send((raw,))
        elif not raw or codec.is_keep_alive(raw, payload):
            queue.keep_alive(raw)
            if self.acts.cut:  # by text that the client does not get
                self._ends_text(b"", (), ())
        elif payload is not None:
            events, entries = calls.read(raw, payload)
            self._parts = entries, codec.choices_of(payload)
            self._process(raw, events, *self._parts)
        else:
            is_end = self._may_end and codec.is_end(raw)
            self._process(raw, calls.read_end() if is_end else ())

    def _process(
        self, raw: bytes, events: Sequence[Event], entries: Sequence[Entry] = (), choices: Sequence[int] = ()
    ) -> None:
        """Step the holds by the events of a frame, then send or queue it."""
        queue = self.queue
        for event in events:
            self.calls.apply(event)
            if cause := self._end_of_hold(event):
                self._fail_before_verdict(raw, cause)
                return
        if (self.acts.cut or self.calls.finder.growing.found) and self._ends_here(raw, events, entries, choices):
            return
        self.calls.prefixes.compare(choices)
        queue.put(raw, choices, entries)
        if not events:
            return
        if self.calls.is_flooded and not self._codec.whole and self._loop.may_cut:
            self.calls.cut_short()
            return
        if self._may_end and What.ENDED in [event.what for event in events]:
            self.calls.end()
            if not self.queue.to_judge:
                self.pass_rest()

    def _ends_here(self, raw: bytes, events: Sequence[Event], entries: Sequence[Entry], choices: Sequence[int]) -> bool:
        """End a stream with this frame if a text or the arguments of a call run away; return whether it ends."""
        ends_text = self.acts.cut is not None and self._ends_text(raw, entries, choices)
        return ends_text or self._ends_endless(raw, events, entries, choices)

    def _ends_endless(
        self, raw: bytes, events: Sequence[Event], entries: Sequence[Entry], choices: Sequence[int]
    ) -> bool:
        """End the answer if this frame shows that the arguments of a call run away; return whether it ends. The frame
        waits for the verdict, unless it only adds to a call whose beginning the client has."""
        queue = self.queue
        call = self.calls.find_endless()
        if call is None or self.calls.over or self._codec.whole or not self._loop.may_cut:
            return False
        if not events:
            queue.put(raw, choices, entries)
        queue.step(call.choice, Input.SUSPECT)
        queue.step(call.choice, Input.LOOPING)
        if events:
            queue.put(raw, choices or (call.choice,), entries)
        self.calls.cut_short(call)
        return True

    def _ends_text(self, raw: bytes, entries: Sequence[Entry], choices: Sequence[int]) -> bool:
        """End the answer with this frame, which waits for the verdict, if the text may be cut here."""
        if self.calls.may_cut_text:
            return self.calls.cut_text(raw, entries, choices, whole=self._codec.whole)
        self.acts.spare()
        return False

    @property
    def _may_end(self) -> bool:
        """Whether an end of the answer counts. An end before the first call does not: it may have passed unread."""
        return self.calls.any or self._continues

    def _end_of_hold(self, event: Event) -> str:
        """Return why nothing can be held any longer after this event; empty if holding is possible."""
        queue = self.queue
        if event.what is What.BROKE and (queue.size or (self._continues and not queue.spoke)):
            return "error in the stream"
        return _TOO_WIDE if queue.width > MOST_CHOICES else ""

    def _pass_broken(self, raw: bytes, cause: str) -> None:
        """Pass a frame that cannot be parsed. It ends the hold if frames wait, or if a client may read a call in it.
        After a frame that breaks the format, no other frame can be found."""
        may_call = cause == _UNREADABLE and self.mode is Mode.FOLLOWING and self._codec.names_call(raw)
        if self.queue.size or cause == _BROKEN_STREAM or may_call:
            self._fail_before_verdict(raw, cause)
            if cause == _BROKEN_STREAM and self.mode in _READS:
                self.enter(Mode.PASSING)
        elif not self._drops_answer:  # a pending answer must begin with a frame of its own
            self.queue.bypass(raw)

    def _let_go(self, at_fault: bytes | None = None) -> None:
        """Release the frames that wait and the one at fault. With `fail_closed` no call leaves unjudged: held calls end
        in a block, and the frame at fault passes only if it has no call."""
        queue = self.queue
        left = at_fault if at_fault and not queue.is_newest(at_fault) else b""
        if not self._loop.judge.settings.fail_closed:
            self.pass_rest()
            queue.open()
            queue.bypass(left)
        elif at_fault is not None and not queue.held and not self._codec.names_call(at_fault):
            queue.bypass(left)
        else:
            if at_fault:
                self.kept.drop(at_fault)  # the client does not get it
            queue.bypass(self.end_unjudged())

    def end_unjudged(self) -> bytes:
        """End the answer with a block in place of what is held."""
        return self.end(self.acts.unjudged_blocks())

    def end(self, *ends: Blocks) -> bytes:
        """End the client's answer with the first of these blocks that can be written. Return nothing if none can, so
        that the answer breaks off."""
        self.enter(Mode.SILENT)
        for blocks in ends:
            out = self.attempt(partial(self._rewriter.end, blocks))
            if out is not None:
                return out
        return b""
