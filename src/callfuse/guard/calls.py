"""Assemble the calls of one answer from its reader's events: which are complete, which loop, and how the answer
ended."""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

from callfuse.detect.siblings import UNNAMED, Siblings
from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What
from callfuse.guard.growing import GrowingCalls
from callfuse.guard.hold import Input
from callfuse.guard.judge import Judge
from callfuse.guard.prefixes import HeldPrefixes
from callfuse.guard.queue import HoldQueue
from callfuse.guard.template import PayloadOf, TemplateFinder
from callfuse.model import ToolCall
from callfuse.wire import Payload


class Ending:
    """How an answer ended, collected from its events.

    `finished`: choices with a finish reason. `cut`: calls that a limit or a filter may have cut off. `broke`: the
    stream carried an error.
    """

    __slots__ = ("broke", "cut", "finished")

    def __init__(self) -> None:
        self.finished: set[int] = set()
        self.cut: set[OpenCall] = set()
        self.broke = False

    def note(self, event: Event) -> None:
        """Update from one event; other kinds of events are ignored."""
        if event.what is What.FINISHED or event.what is What.CUT:
            self.finished.add(event.choice)
            if event.call is not None:
                self.cut.add(event.call)
        elif event.what is What.BROKE:
            self.broke = True

    def forget(self) -> None:
        """Reset the state from before the first call. Those frames may have passed unread, so this state would depend
        on the chunks."""
        self.finished.clear()
        self.broke = False

    def is_evidence(self, call: OpenCall) -> bool:
        """Whether a call is complete, named and not cut off: only such calls are judged and kept."""
        return call.closed and call.has_name and call not in self.cut


class _Round:
    """The calls of one choice so far. `news`: a call is new. `condemned`: looping calls that a new call would clear;
    `stubborn`: there are looping calls that it would not clear. `is_over`: later calls are not judged, because there
    are too many."""

    __slots__ = ("condemned", "is_over", "news", "siblings", "stubborn")

    def __init__(self) -> None:
        self.siblings = Siblings()
        self.condemned: list[ToolCall] = []
        self.news = False
        self.stubborn = False
        self.is_over = False


class AnswerCalls:
    """Reads one answer and steps the holds of its choices.

    `over`: the answer has ended; `complete`: properly; `is_cut`: before the model's own end. `beyond`: calls after one
    that ends the round, which are not judged and get the same treatment as that call. `finder` finds frames that only
    add to a call, and its `growing` searches the arguments; `prefixes` compares the calls that wait, after the events
    of each frame.
    """

    def __init__(self, reader: Reader, judge: Judge, queue: HoldQueue, payload_of: PayloadOf) -> None:
        self.over = False
        self.complete = False
        self.is_cut = False
        self.beyond: set[OpenCall] = set()
        self._reader = reader
        self.finder = TemplateFinder(reader.calls, payload_of, GrowingCalls())
        self._judge = judge
        self._queue = queue
        self._ending = Ending()
        self._made: dict[OpenCall, tuple[int, ToolCall]] = {}
        self._rounds: dict[int, _Round] = {}
        self._growing: dict[OpenCall, str] = {}
        self._flooded = False
        self.prefixes = HeldPrefixes(judge, queue)

    @property
    def any(self) -> bool:
        """Whether the answer has any call so far."""
        return bool(self._reader.calls)

    @property
    def broke(self) -> bool:
        """Whether the stream has carried an error."""
        return self._ending.broke

    @property
    def endless(self) -> OpenCall | None:
        """The call whose arguments run away and for which the answer was ended; None if there is no such call."""
        return self.finder.growing.endless

    @property
    def choices(self) -> set[int]:
        """The choices that have calls."""
        return {call.choice for call in self._reader.calls}

    @property
    def choices_known(self) -> set[int]:
        """The choices that have calls, or have finished after the first call."""
        return self._queue.choices | self._ending.finished

    @property
    def is_flooded(self) -> bool:
        """Whether there are so many calls that callfuse does not wait for the rest of the answer. False while a call is
        growing whose beginning the client has."""
        return (
            self._flooded and not (self.over or self._is_finished) and all(map(self._queue.holds_call, self._growing))
        )

    @property
    def may_cut_text(self) -> bool:
        """Whether the answer may end here, in the middle of a text: the client has no beginning of a growing call."""
        return not self.over and all(call.closed or self._queue.holds_call(call) for call in self._reader.calls)

    @property
    def would_complete(self) -> bool:
        """Whether the answer is complete if nothing more comes: it has ended, or every choice has finished."""
        return self.complete or (not self.over and self._is_finished)

    @property
    def _is_finished(self) -> bool:
        """Whether every choice has finished, without an error."""
        finished = self._ending.finished
        return bool(finished) and finished >= self._queue.choices and not self._ending.broke

    def adopt(self, reader: Reader, ending: Ending, unread: Sequence[Event], growing: GrowingCalls | None) -> None:
        """Continue with a reader whose calls have left so far. `unread`: the events of its last frame, which are still
        to be applied. `ending`: how the answer ended by all earlier events; some choices may have finished."""
        self._reader = reader
        self._ending = ending
        self.finder.growing = growing or self.finder.growing
        self.finder.calls = reader.calls
        opened = {event.call for event in unread if event.what is What.OPENED}
        closed = {event.call for event in unread if event.what is What.CLOSED}
        for call in reader.calls:
            if call in opened:
                continue
            round_ = self._round_of(call.choice)
            self._queue.open_call(call, suspect=False)
            if not call.closed or call in closed:
                self._begin_growing(round_.siblings, call)
                continue
            complete = self._complete(call)
            round_.siblings.add(complete)
            round_.news |= self._judge.is_news(complete)

    def read(self, frame: bytes, payload: Payload) -> tuple[Sequence[Event], Sequence[Entry]]:
        """Return the events of a frame with this payload, and the places of the parts of calls in it."""
        self.finder.begin()
        events = self._reader.read(payload)
        self.finder.growing.read(events)
        self.finder.find(frame)
        return events, self._reader.entries

    def read_end(self) -> Sequence[Event]:
        """Return the events of the frame without payload that ends an answer (`[DONE]`)."""
        return self._reader.end()

    def apply(self, event: Event) -> None:
        """Process one event: step the hold of its choice."""
        self._ending.note(event)
        call = event.call
        if call is None:
            return
        if event.what is What.OPENED:
            self._open(event.choice, call)
        elif event.what is What.CLOSED:
            self._close(event.choice, call)

    def _round_of(self, choice: int) -> _Round:
        round_ = self._rounds.get(choice)
        if round_ is None:
            round_ = self._rounds[choice] = _Round()
        return round_

    def _open(self, choice: int, call: OpenCall) -> None:
        """Open a call, and start a hold if it is suspect. A dialect may open a call twice, first without its name."""
        if not self._rounds:
            self._ending.forget()
        round_ = self._round_of(choice)
        siblings = round_.siblings
        self._stop_growing(siblings, call)
        if round_.is_over:
            self._queue.open_call(call, suspect=True)
            self._begin_growing(siblings, call)
            return
        beside = self._is_suspect_beside(call, siblings)
        alone = not (beside or siblings.growing)
        self._queue.open_call(call, suspect=beside or self._is_suspect(call) or self._is_endless(call))
        self._begin_growing(siblings, call)
        if self._queue.is_holding(choice):
            self.prefixes.begin(call, alone=alone)

    def _begin_growing(self, siblings: Siblings, call: OpenCall) -> None:
        tool = UNNAMED if call.name_grows else call.name
        self._growing[call] = tool
        siblings.grow(tool)

    def _is_suspect(self, call: OpenCall) -> bool:
        """Whether a call that opens could be withheld because of earlier rounds."""
        judge = self._judge
        return judge.must_hold(call.name, call.namespace) or (call.name_grows and judge.must_hold_beginning(call.name))

    def _is_suspect_beside(self, call: OpenCall, siblings: Siblings) -> bool:
        """Whether a call that opens could be withheld because of the other calls of its round."""
        judge = self._judge
        return judge.must_hold_beside(call.name, call.namespace, siblings) or (
            call.name_grows and judge.must_hold_beginning_beside(call.name, siblings)
        )

    def _is_endless(self, call: OpenCall) -> bool:
        """Whether the arguments of a call run away, and it would be withheld for that."""
        return call in self.finder.growing.found and call.has_name and self._judge.stops(self._complete(call))

    def find_endless(self) -> OpenCall | None:
        """Return the call for which the answer is to be ended: its arguments run away, and it is growing or has left in
        part."""
        for call in self.finder.growing.take():
            if not (call.closed and self._queue.holds_call(call)) and self._is_endless(call):
                return call
        return None

    def _stop_growing(self, siblings: Siblings, call: OpenCall) -> None:
        tool = self._growing.pop(call, None)
        if tool is not None:
            siblings.stop(tool)

    def _close(self, choice: int, call: OpenCall) -> None:
        """Close a complete call: judge it if its choice is held, and release the choice if a new call clears the
        looping calls."""
        self.prefixes.end(call)
        round_ = self._round_of(choice)
        siblings = round_.siblings
        self._stop_growing(siblings, call)
        if round_.is_over:
            self.beyond.add(call)
            return
        complete = self._complete(call)
        if not round_.news and self._judge.is_news(complete):
            round_.news = True
            round_.stubborn |= any(self._judge.finding(one, news=True) for one in round_.condemned)
            round_.condemned.clear()
        if self._queue.is_holding(choice):
            self._judge_held(call, complete, round_)
            # Calls that are still growing may loop in spite of the new call.
            if round_.news and not round_.stubborn and not siblings.growing:
                self._queue.step(choice, Input.NEWS)
        siblings.add(complete)

    def _judge_held(self, call: OpenCall, complete: ToolCall, round_: _Round) -> None:
        """Judge a complete call while its choice waits, beside the calls that are complete so far. Calls may end in
        another order than they began, so a call that has left can make a waiting one too many."""
        siblings = round_.siblings
        finding = self._judge.finding(complete, news=round_.news, siblings=siblings)
        looping = finding is not None
        if finding is not None:
            self._flooded |= self._judge.cuts(complete, finding)
            round_.is_over = self._judge.ends_round(finding)
        if looping and not self._queue.holds_call(call):
            looping = self._judge.finding(complete, news=round_.news) is None
        # Waiting frames may have pieces of several calls by turns; a nameless call says nothing about those after it.
        if looping or (call.has_name and not siblings.growing):
            self._queue.step(call.choice, Input.LOOPING if looping else Input.INNOCENT)
        if looping and (round_.news or self._judge.finding(complete, news=True, siblings=siblings)):
            round_.stubborn = True
        elif looping:
            round_.condemned.append(complete)

    def cut_short(self, endless: OpenCall | None = None) -> None:
        """End the answer before the model does, without waiting for the rest. `endless`: the call that is the cause."""
        self.is_cut = True
        self.finder.growing.endless = endless
        self.end(complete=True)

    def cut_text(self, raw: bytes, entries: Sequence[Entry], choices: Sequence[int], *, whole: bool) -> bool:
        """End the answer with this frame, in the middle of a text; the frame waits for the verdict. Return False if the
        answer is `whole` and ends by itself."""
        choice = choices[0] if choices else 0
        self._queue.step(choice, Input.SUSPECT)
        self._queue.step(choice, Input.LOOPING)
        if whole:
            return False
        if raw:
            self._queue.put(raw, choices or (choice,), entries)
        self.cut_short()
        return True

    def end(self, *, complete: bool | None = None) -> None:
        """End the answer. `complete=None` (the default) means: complete if every choice has finished."""
        finished = self._is_finished if complete is None else complete
        self.over = True
        self.complete = finished
        self._queue.end(complete=finished)

    def of_choices(self, choices: Iterable[int]) -> list[dict[OpenCall, ToolCall]]:
        """Return the complete calls of each of these choices, in order of the answer, without calls that were cut off
        or are not judged."""
        found: dict[int, dict[OpenCall, ToolCall]] = {choice: {} for choice in choices}
        for call in self._reader.calls:
            if call.choice in found and self._is_evidence(call):
                found[call.choice][call] = self._complete(call)
        return list(found.values())

    def complete_calls(self) -> dict[OpenCall, ToolCall]:
        """Return the complete calls of all choices, in order of choice."""
        calls = sorted(self._reader.calls, key=attrgetter("choice"))
        return {call: self._complete(call) for call in calls if self._is_evidence(call)}

    def cut_off(self) -> list[ToolCall]:
        """Return the calls that a limit has cut off; they are not evidence in any other way."""
        calls = [call for call in self._reader.calls if not self._is_evidence(call)]
        return [self._complete(call) for call in calls if call.has_name and call not in self.beyond]

    def _is_evidence(self, call: OpenCall) -> bool:
        return call is self.endless or (self._ending.is_evidence(call) and call not in self.beyond)

    def choices_beside(self, calls: set[OpenCall]) -> set[int]:
        """Return the choices that have calls other than these, complete or not. Calls without a name do not count."""
        return {call.choice for call in self._reader.calls if call.has_name and call not in calls}

    def nameless(self, choices: Collection[int]) -> set[OpenCall]:
        """Return the calls of these choices that have no name, so that no client can execute them."""
        return {call for call in self._reader.calls if not call.has_name and call.choice in choices}

    def _complete(self, call: OpenCall) -> ToolCall:
        """Return the call as a `ToolCall`: one object per call, created again only if more pieces have come."""
        known, size = self._made.get(call), len(call.pieces) + call.grown + call.closed
        if known is None or known[0] != size:
            (complete,) = self._judge.apply_ignored_arguments([call.complete()])
            known = self._made[call] = (size, complete)
        return known[1]
