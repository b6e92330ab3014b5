"""Judges the calls of one caller, and keeps their results so that it can give them again. No IO.

    pending = caller.begin(calls, client)  # before they run: `found` says what is to be done about each
    data = caller.settle(data, find)  # what the server answers, with the notices that go with results
    caller.give_up(pending[0])  # no result has come

MCP shows no answers of a model, only calls: each POST is a round of its own. A call that comes while an equal one still
runs is part of the same round for all that is known; it runs unjudged and does not count.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from callfuse.config import Config
from callfuse.inprocess import LoopDetection, LoopDetector
from callfuse.inprocess.detection import detection_of
from callfuse.inprocess.detector import OnLoop
from callfuse.mcp import messages
from callfuse.mcp.identity import Identity
from callfuse.mcp.messages import CallRequest, Kept, Response, ResponseKind
from callfuse.mcp.results import Results
from callfuse.mcp.run_times import RunTimes
from callfuse.model import ToolCall
from callfuse.model.signature import Signature
from callfuse.observe.bus import Bus
from callfuse.observe.events import Where
from callfuse.policy import texts
from callfuse.policy.rungs import Rung
from callfuse.wire.jsontext import NotJSON, apply

WAITING_KEPT: Final = 32
"""Calls of one caller whose result may come with another request, later."""
LONGEST_WAITING: Final = 20_000
"""Characters of the arguments of such a call."""
OF_SEVERAL: Final = frozenset({"cycle", "no_news"})
"""Kinds of loops in which a call may come for the second time only."""
LAPS: Final = 3
"""So many windows of rounds are looked at for how often a call of such a loop has run."""
NO_RESULT: Final = "The call timed out or was cancelled: no result came."
"""What detectors read where no result was seen. In their eyes it is mended by waiting, and so hardly a sign of a
loop."""
STILL_RUNNING: Final = {"status": "running"}
"""What they read where the result is a task."""

_CALLER: Final = 8000
"""Bytes of a caller, about, without its rounds."""
_CALL: Final = 1500
"""Bytes of a call with its outcome, about."""
_TIME: Final = 1000
_LONGEST_ARGUMENTS: Final = 20_000


class _LaneDetector(LoopDetector):
    """A detector whose events say `where` its calls come from."""

    def __init__(
        self, config: Config, where: Where, bus: Bus, clock: Callable[[], float], on_loop: OnLoop | None
    ) -> None:
        super().__init__(config, session=where.session, bus=bus, clock=clock, on_loop=on_loop)
        self._where = where


@dataclass(slots=True, eq=False)
class Pending:
    """A call between its request and its response. `identity`: who may read its result. `counts`: it is judged and its
    result recorded. `is_open`: no result was seen yet, and one may still come. `runs`: equal calls that come now count
    as one with it."""

    request: CallRequest
    call: ToolCall
    identity: Identity
    counts: bool
    found: LoopDetection | None = None
    is_open: bool = True
    runs: bool = False

    @property
    def withheld(self) -> bool:
        """Whether the call must not run."""
        return self.found is not None and self.found.withholds


Find = Callable[[bytes], Pending | None]
"""The call for the key of a response; None if callfuse does not know it."""


class Caller:
    """The calls of one lane.

    Nobody says when a person has spoken, which frees what was blocked elsewhere. So once nothing has run for longer
    than `ttl_seconds`, all begins anew, and a call that has not run for so long runs, with a warning at most.

    Calls of several clients may be in one lane, such as those of one conversation in several sessions. They count
    together, but a result is for the identity that got it: nobody else is given it, nor a text that quotes it.

    `clock`: seconds. `size`: the bytes of memory that it takes, about. Memory is bounded as that of `LoopDetector` is;
    the newest results are kept as they came, `RESULTS_BYTES` bytes of them.
    """

    def __init__(self, config: Config, where: Where, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self.where = where
        self.detector = _LaneDetector(config, where, bus, clock, self._spare)
        self._times = RunTimes(clock)
        self._rounds: deque[int] = deque(maxlen=self.detector.settings.max_rounds)
        self._results = Results()
        self._running: Counter[Signature] = Counter()
        self._in_flight: dict[bytes, Pending] = {}
        self._awaited: OrderedDict[bytes, Pending] = OrderedDict()
        self._suspended: OrderedDict[Signature, Pending] = OrderedDict()

    @property
    def size(self) -> int:
        """The bytes of memory that the caller takes."""
        waiting = len(self._awaited) + len(self._suspended)
        return _CALLER + sum(self._rounds) + self._results.size + waiting * LONGEST_WAITING + _TIME * len(self._times)

    def begin(self, requests: Iterable[CallRequest], client: bytes) -> list[Pending]:
        """Judge the calls of one POST. Raises what a detector raises under `fail_closed`. `client`: see `Identity`."""
        if self._times.begin(self.detector.settings.ttl_seconds):
            self.detector.clear()
            self._results.forget_readers()
        pending = [self._pending(request, client) for request in requests]
        judged = [one for one in pending if one.counts and not one.request.continues]
        found = self.detector.check_round([one.call for one in judged])
        for one, detection in zip(judged, found, strict=True):
            one.found = detection
            one.is_open = not one.withheld
        self._rounds.append(sum(_CALL + min(len(one.request.arguments), _LONGEST_ARGUMENTS) for one in pending))
        for one in pending:
            if one.is_open:
                self._note_run(one)
        return pending

    def _note_run(self, pending: Pending) -> None:
        """Note that a call runs now."""
        signature = pending.call.signature
        self._times.note(signature, counts=pending.counts)
        if pending.counts:
            pending.runs = True
            self._running[signature] += 1
            self._in_flight[pending.request.key] = pending

    def _spare(self, found: LoopDetection) -> str | None:
        """Return the rung for a finding, if not its own. What a call brought so long ago is not given again. Nor is, in
        a loop of several calls, what it has brought less often than it may by itself: what an agent does elsewhere is
        not seen here, such as an edit between two looks at two files."""
        signature, settings = found.call.signature, self.detector.settings
        is_stale = self._times.age(signature) > settings.ttl_seconds
        times = self._times.count(signature, LAPS * settings.window)
        is_seldom = found.kind in OF_SEVERAL and times < settings.for_tool(found.call.name).settings.max_repeats - 1
        return Rung.WARN if found.withholds and (is_stale or is_seldom) else None

    def _pending(self, request: CallRequest, client: bytes) -> Pending:
        ignore = self.detector.settings.for_tool(request.name).ignore
        call = ToolCall("", request.name, request.arguments, ignore=ignore)
        whole = ToolCall("", request.name, request.arguments).signature if ignore else b""
        identity = Identity(client, request.about, whole)
        before = self._suspended.pop(call.signature, None)
        if request.continues:
            found = None if before is None else before.found
            return Pending(request, call, identity, before is not None, found)
        if before is not None:
            self._record_nothing(before)
        for key in [key for key, one in self._awaited.items() if one.call.signature == call.signature]:
            self._record_nothing(self._awaited.pop(key))
        return Pending(request, call, identity, counts=not self._running[call.signature])

    def settle(self, data: bytes, find: Find) -> bytes:
        """Record the responses in the data of an answer; returns the data with the notices that go with them, the same
        object if there are none."""
        try:
            responses = messages.read_responses(data)
        except NotJSON:
            return data
        edits = []
        for response in responses:
            pending = find(response.key)
            notice = "" if pending is None else self._take(pending, response)
            if notice and (edit := messages.notice_edit(response, notice)) is not None:
                edits.append(edit)
        return apply(data, edits)

    def _take(self, pending: Pending, response: Response) -> str:
        """Record a call's response. Returns the notice that goes with it, or an empty text."""
        if not pending.is_open:
            return ""
        self._close(pending)
        if not pending.counts:
            return ""
        if response.kind is ResponseKind.INPUT:
            self._keep_waiting(self._suspended, pending.call.signature, pending)
            return ""
        is_final = response.kind is ResponseKind.FINAL
        content, is_error = messages.content_of(response) if is_final else (STILL_RUNNING, None)
        self._results.note_reader(pending.identity)
        late = self.detector.record(content, pending.call, is_error=is_error)
        if is_final:
            self._results.keep(pending.call.signature, pending.identity, messages.result_to_keep(response))
        found = (self.notice(pending, one) for one in (pending.found, late) if one is not None)
        return "\n\n".join(notice for notice in found if notice)

    def notice(self, pending: Pending, found: LoopDetection) -> str:
        """Write the text for a finding. It quotes no result if any known result may be another user's."""
        if self._results.are_all_of(pending.identity):
            return found.message
        finding, settings = found.verdict.finding, self.detector.settings
        own = replace(finding, previous=None, stretch=finding.stretch._replace(found_nothing=False))
        verdict = replace(found.verdict, finding=own)
        return detection_of(verdict, settings, model="", number=found.number, previous=None).message

    def give_up(self, pending: Pending) -> None:
        """Stop waiting for the response to a call."""
        if pending.is_open:
            self._close(pending)
            if pending.counts:
                self._record_nothing(pending)

    def cancel(self, key: bytes) -> None:
        """Cancel the request of this key, as its caller has asked. A response that still comes does not count."""
        pending = self._in_flight.get(key) or self._awaited.pop(key, None)
        if pending is not None:
            self.give_up(pending)

    def await_later(self, pending: Pending) -> None:
        """Wait for the rest of an answer that broke off: it may come with another request (`take_awaited`)."""
        if pending.is_open:
            self._close(pending)
            if pending.counts:
                pending.is_open = True
                self._keep_waiting(self._awaited, pending.request.key, pending)

    def take_awaited(self, key: bytes, client: bytes) -> Pending | None:
        """Return the call whose late result this key announces, and stop waiting for it. `client`: who reads that
        response."""
        pending = self._awaited.pop(key, None)
        if pending is not None:
            pending.identity = pending.identity._replace(client=client)
        return pending

    def previous(self, pending: Pending) -> Kept | None:
        """Return the earlier result of the same call by the same identity, if it is kept."""
        return self._results.of(pending.call.signature, pending.identity)

    def _close(self, pending: Pending) -> None:
        pending.is_open = False
        if not pending.runs:
            return
        pending.runs = False
        if self._in_flight.get(pending.request.key) is pending:
            del self._in_flight[pending.request.key]
        signature = pending.call.signature
        self._running[signature] -= 1
        if not self._running[signature]:
            del self._running[signature]

    def _record_nothing(self, pending: Pending) -> None:
        self.detector.record(NO_RESULT, pending.call, is_error=True)

    def _keep_waiting(self, among: OrderedDict[bytes, Pending], key: bytes, pending: Pending) -> None:
        if len(pending.request.arguments) > LONGEST_WAITING:
            self._record_nothing(pending)
            return
        among[key] = pending
        while len(among) > WAITING_KEPT:
            self._record_nothing(among.popitem(last=False)[1])


def reply(caller: Caller, pending: Pending, *, is_modern: bool, says_read_only: bool) -> bytes:
    """Write the response to a call that must not run: the notice, after the call's previous result if that is kept.

    `says_read_only`: the server says that the tool changes nothing. What changes something has not done so this time:
    its previous result would say that it has, and is left out. Nothing else depends on what a server says.
    """
    found, settings = pending.found, caller.detector.settings.for_tool(pending.call.name)
    notice = caller.notice(pending, found) if found is not None else ""
    is_block = found is not None and found.action is not None and found.action.blocks
    is_error = is_block and settings.settings.finish_reason == "error"
    is_read_only = settings.is_read_only or (says_read_only and not settings.changes_state)
    kept = caller.previous(pending) if is_read_only else None
    return messages.reply(pending.request.id, kept, notice, is_error=is_error, is_modern=is_modern)


def header_of(pending: Sequence[Pending]) -> str:
    """Return the value of `x-callfuse-action` for these calls; empty if none was withheld."""
    return texts.header([one.found.verdict for one in pending if one.found is not None])
