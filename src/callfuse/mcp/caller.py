"""Judge the calls of one caller, and keep their results so that they can be repeated. Does no IO.

    pending = caller.begin(calls, client)  # before they run: `found` is the finding of each
    data = caller.settle(data, find)  # the server's answer, with notices added to results
    caller.give_up(pending[0])  # no result has arrived

MCP does not show the model's answers, only calls, so each POST is a round of its own. A call during an equal one may
belong to the same round, so it runs unjudged and does not count.
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
"""The most calls of one caller whose results may arrive later, with another request."""
LONGEST_WAITING: Final = 20_000
"""The most characters of the arguments of such a call."""
OF_SEVERAL: Final = frozenset({"cycle", "no_news"})
"""Kinds of loops with a finding already at the second run of a call."""
LAPS: Final = 3
"""Runs of a call in such a loop are counted over this number of windows."""
NO_RESULT: Final = "The call timed out or was cancelled: no result came."
"""The result that detectors read if none was seen. They treat it as a passing problem, which is hardly a sign of a
loop."""
STILL_RUNNING: Final = {"status": "running"}
"""The result that they read if it is a task."""

_CALLER: Final = 8000
"""Estimated bytes of a caller without its rounds."""
_CALL: Final = 1500
"""Estimated bytes of a call with its outcome."""
_TIME: Final = 1000
_LONGEST_ARGUMENTS: Final = 20_000


class _LaneDetector(LoopDetector):
    """A detector that sets `where` in its events."""

    def __init__(
        self, config: Config, where: Where, bus: Bus, clock: Callable[[], float], on_loop: OnLoop | None
    ) -> None:
        super().__init__(config, session=where.session, bus=bus, clock=clock, on_loop=on_loop)
        self._where = where


@dataclass(slots=True, eq=False)
class Pending:
    """A call between its request and its response. `identity`: who may read its result. `counts`: it is judged, and its
    result is recorded. `is_open`: no result was seen yet, but one may arrive. `runs`: it is running, so an equal call
    now does not count."""

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
"""Returns the call for the key of a response; None if it is unknown."""


class Caller:
    """The calls of one lane.

    In MCP, user messages, which end blocks in model APIs, are not visible. So after a pause of more than `ttl_seconds`
    without calls, everything is forgotten, and a call that has not run for so long gets at most a warning.

    Calls of several clients may be in one lane, for example one conversation in several sessions. They count together,
    but only the identity that got a result gets it again, or a text that quotes it.

    `clock`: seconds. `size`: approximate bytes of memory. Memory is bounded as for `LoopDetector`; of the newest
    results, `RESULTS_BYTES` bytes are kept unchanged.
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
        """Judge the calls of one POST. Raises the detector's errors under `fail_closed`. `client`: see `Identity`."""
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
        """Return another rung for a finding; None to keep its own. It becomes a warning if the call's last run is too
        long ago. In a loop of several calls, it also does if the call itself ran fewer times than it may: actions
        elsewhere are not visible here, such as an edit of two files that the agent reads again."""
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
        """Record the responses in the data of an answer. Returns the data with notices added, or the same object if
        there are none."""
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
        """Record a call's response. Returns the notice to add, or an empty text."""
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
        """Cancel the request of this key, as its caller has asked. A later response does not count."""
        pending = self._in_flight.get(key) or self._awaited.pop(key, None)
        if pending is not None:
            self.give_up(pending)

    def await_later(self, pending: Pending) -> None:
        """Wait for the rest of an answer that broke off, which may arrive with another request (`take_awaited`)."""
        if pending.is_open:
            self._close(pending)
            if pending.counts:
                pending.is_open = True
                self._keep_waiting(self._awaited, pending.request.key, pending)

    def take_awaited(self, key: bytes, client: bytes) -> Pending | None:
        """Return the awaited call with this key, and stop waiting for it. `client`: who reads its late response."""
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
    """Write the response to a call that must not run: the notice, after the call's previous result if it is kept.

    `says_read_only`: the server declares the tool as read-only. For other tools the previous result is left out,
    because it would report a change that was not made this time. Nothing else depends on the server's declaration.
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
