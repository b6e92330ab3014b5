"""`LoopDetector`: judges each call that an agent is about to run, from the calls and results before it."""

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import RLock
from typing import Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.config import Source, load_config
from callfuse.conversations.ledger import NO_BLOCKS, TIMES_KEPT, BlockMemory, Told
from callfuse.conversations.mending import Course, taught
from callfuse.detect.repeat import RepeatChanging
from callfuse.guard.judge import Judge
from callfuse.guard.record import past_round
from callfuse.inprocess.detection import LoopDetection, LoopStats, detection_of
from callfuse.inprocess.history import RoundHistory
from callfuse.inprocess.values import arguments_text
from callfuse.model import MARKER, PastCall, ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import (
    ActionTaken,
    CallbackFailed,
    CallSeen,
    CourseMended,
    FailedOpen,
    FeedbackGiven,
    FindingSeen,
    Where,
    action_of,
    new_finding_id,
)
from callfuse.observe.log import LogSink
from callfuse.observe.would import would_take
from callfuse.policy.holdout import HOLDOUT, arm_of
from callfuse.policy.ladder import Verdict, rung_of_answer
from callfuse.policy.settings import LoopSettings, Rung

T = TypeVar("T")
NO_NAME: Final = "-"
"""The session of a detector without one."""

OnLoop = Callable[[LoopDetection], str | bool | None]
"""Gets each detection before its action. None keeps the action; a rung's name, or `allow`, changes it. True means
`allow`, False means `block`."""


class LoopDetector:
    """Watches one agent run: `check` each call before it runs, and `record` its result afterwards.

    `config` is the same as for the middleware: a mapping in the shape of the configuration file (`{"tool_call_loop":
    {"mode": "graduated"}}`), a `ToolCallLoopConfig`, the path of a file, a `Config`, or None for environment and
    `CALLFUSE_CONFIG`. Raises ConfigError for a wrong one. `enabled=False` turns this detector off, whatever the
    settings are. `session` is the name of the run in log lines (default `-`). `model` fills the placeholder of texts,
    and with `backend` (`openai`) selects the settings under `models`. `clock` returns seconds. With a `holdout`, the
    detectors of a share of sessions only observe: chosen by the session's name, or at random for a detector without
    one. `bus` gets events (`callfuse.observe.bus`); None, the default: log lines only.

    `on_loop` is called in the thread of the check, so it must be a plain function (else TypeError). If it raises, or
    returns anything but a rung, this is logged, and the action stays.

    Use one detector for one run of one agent, because agents that share one would end each other's streaks. All methods
    are thread-safe, for tools that run in parallel. Memory is bounded: `max_rounds` rounds, with long arguments and
    results cut. After a pause of ten times `ttl_seconds`, blocks are forgotten.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        enabled: bool = True,
        session: str = NO_NAME,
        model: str = "",
        backend: str = "",
        clock: Callable[[], float] = time.monotonic,
        bus: Bus | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(on_loop):
            raise TypeError(f"on_loop = {on_loop!r}: use a plain function, not an async one")
        settings = load_config(config).tool_call_loop.for_exchange(f"{backend}:{model}")
        settings = settings if enabled else settings.model_copy(update={"enabled": False})
        self._arm = arm_of(settings, b"", new_finding_id() if session == NO_NAME else session)
        self.settings: LoopSettings = self._arm.settings
        self._on_loop = on_loop
        self._where = Where(session, "", "", model, backend, "in-process")
        self._bus = Bus(LogSink()) if bus is None else bus
        self._clock = clock
        self._lock = RLock()
        self._tools: set[str] = set()
        self._start()

    def _start(self) -> None:
        self.stats = LoopStats()
        self._calls = 0
        self._reported: set[int] = set()
        self._new_history(NO_BLOCKS)

    def _new_history(self, blocks: BlockMemory) -> None:
        self._history = RoundHistory(self.settings.max_rounds, self.settings.window, blocks)
        self._course = Course(())
        self._has_message = False

    @property
    def enabled(self) -> bool:
        """Whether the detector is on."""
        return self.settings.enabled

    def declare_tools(self, names: Iterable[str]) -> None:
        """Add names of existing tools. Repeated calls of any other tool are then a loop, too (`unknown_tool`)."""
        with self._lock:
            self._tools.update(names)

    def check(self, call: ToolCall) -> LoopDetection | None:
        """Judge the only call of a model's answer, before it runs; None if nothing is found.

        Its arguments are a mapping, or the JSON text that the model wrote; raises TypeError for anything else. Checking
        a call adds it to the history, so check it only once.
        """
        return self.check_round([call])[0]

    def check_round(self, calls: Sequence[ToolCall]) -> list[LoopDetection | None]:
        """Judge all calls of one answer of the model, before any of them runs. Returns a detection or None for each.

        Calls of one answer form a round: equal ones count once, and a new one beside a repeated one is progress.
        """
        if not (calls and self.enabled):
            return [None] * len(calls)
        with self._lock:
            own = [self._copy(call, self._calls + at) for at, call in enumerate(calls, 1)]
            self._calls += len(own)
            self.stats.calls += len(own)
            now = self._clock()
            self._forget_old(now)
            nothing: list[tuple[Verdict, LoopDetection]] = []
            pairs = self._fail_open(lambda: list(map(self._detection, self._judge(now).verdicts(own))), nothing)
            found = {verdict.call: detection for verdict, detection in pairs}
            done = {verdict.call: action_of(verdict) for verdict, _ in pairs}
            for one in own:
                self._bus.emit(CallSeen(self._where, one, done.get(one, "none")))
            if self._has_message and not found:
                self.stats.mitigations += 1
            self._has_message = any(detection.message for detection in found.values())
            verdicts = [verdict for verdict, _ in pairs]
            made = past_round(own, verdicts)
            self._course.follow([made], lambda _: self._told(verdicts))
            self._tell_course()
            self._history.add(made, now)
            return [found.get(call) for call in own]

    def _forget_old(self, now: float) -> None:
        """Forget state that the middleware's ledger would have forgotten after such a pause: blocks, and positions on
        the ladder."""
        if self._history.is_older(now - TIMES_KEPT * self.settings.ttl_seconds):
            self._history.forget()
            self._course = Course(())
            self._has_message = False

    def _told(self, verdicts: Iterable[Verdict]) -> list[Told]:
        """Return the verdicts with a text that asks the model to change course; in a holdout, those that would have
        one."""
        rungs = [(one, self._arm.rung_of(one)) for one in verdicts]
        return [taught(one, self._arm.name) for one, rung in rungs if rung is not None and rung.teaches]

    def _tell_course(self) -> None:
        """Emit how the model reacted to a finding that it read about."""
        for told, result in self._course.take_decided():
            self._bus.emit(CourseMended(self._where, told.finding_id, result, told.arm))

    def _copy(self, call: object, number: int) -> ToolCall:
        """Copy a call, to keep it. Without an id it gets `call_{number}`, unless the number is 0. Raises TypeError."""
        if not isinstance(call, ToolCall) or not isinstance(call.name, str):
            raise TypeError(f"call = {call!r}: use ToolCall(id, name, arguments), with the tool's name as text")
        text = arguments_text(call.full_name, call.arguments)
        ignore = self.settings.for_tool(call.full_name).ignore
        return ToolCall(call.id or (f"call_{number}" if number else ""), call.name, text, call.namespace, ignore=ignore)

    def _judge(self, now: float) -> Judge:
        timeline = self._history.timeline(now, self._tools.__contains__ if self._tools else None)
        return Judge(
            timeline,
            self.settings,
            model=self._where.model,
            refused=self._history.refused(),
            new_id=new_finding_id,
        )

    def _detection(self, verdict: Verdict, *, late: bool = False) -> tuple[Verdict, LoopDetection]:
        """Make a detection from a verdict, after the callback; report and count it. `late`: the call has run
        already."""
        number = self.stats.detections + 1
        found = self._describe(verdict, number)
        changed = self._ask_callback(verdict, found, late=late)
        if changed is not verdict:
            verdict, found = changed, self._describe(changed, number)
        self.stats.take(verdict)
        arm = self._arm.name
        would = would_take(verdict, self._arm, may_change=True, may_ask=True)
        self._bus.emit_finding(FindingSeen(self._where, verdict, self.stats.blocks, arm=arm, would=would))
        if verdict.warns or verdict.withholds:
            action = ActionTaken(self._where, found.finding_id, action_of(verdict), verdict.first, arm)
            self._bus.emit(action)
        return verdict, found

    def _describe(self, verdict: Verdict, number: int) -> LoopDetection:
        previous = self._history.previous(verdict.call)
        return detection_of(verdict, self.settings, model=self._where.model, number=number, previous=previous)

    def _ask_callback(self, verdict: Verdict, found: LoopDetection, *, late: bool) -> Verdict:
        if self._on_loop is None or self._arm.name == HOLDOUT:
            return verdict
        with Boundary(keep_traceback=True) as boundary:  # if the callback raises, the policy's verdict stays
            answer = self._on_loop(found)
            rung = verdict.rung if answer is None else rung_of_answer(answer)
        if boundary.error is not None:
            self._bus.emit(CallbackFailed(boundary.error))
            return verdict
        if answer is None:
            return verdict
        # A call that has run cannot be withheld.
        return replace(verdict, rung=Rung.WARN if late and rung is not None and rung.withholds else rung)

    def _fail_open(self, work: Callable[[], T], otherwise: T) -> T:
        """Run `work`. If it raises, report the error and return `otherwise` (with `fail_closed`, raise)."""
        with Boundary(keep_traceback=True) as boundary:  # callfuse's own errors must not stop the agent
            return work()
        if boundary.error is not None and self.settings.fail_closed:
            raise boundary.error
        self.stats.failures += 1
        self._bus.emit(FailedOpen(boundary.cause, self._where.session))
        return otherwise

    def record(
        self, result: object, call: ToolCall | None = None, *, is_error: bool | None = None
    ) -> LoopDetection | None:
        """Record the result of a call, or the exception that it raised.

        It is the result of `call`, or without one, of the next call of the newest round. Results of withheld calls, of
        calls that are no longer kept, and callfuse's own texts are ignored. `is_error` says whether the result is an
        error. If None, exceptions are errors, and other results are judged by their text. Any type is accepted: texts
        and JSON values are read as they are, anything else by its `repr`.

        Once the round has all its results, they may show a loop that its calls did not: the same error again, with any
        arguments. Then returns a detection, whose `message` goes to the model with this result; else None. Raises
        ValueError if no call waits for a result.
        """
        with self._lock:
            if not self.enabled or (isinstance(result, str) and result.startswith(MARKER)):
                return None
            asked = None
            if call is not None:
                asked = self._copy(call, 0)
            waiting = self._history.waiting(asked)
            if waiting is None:
                if call is not None or any(one.withheld for one in self._history.newest):
                    return None
                raise ValueError("no call awaits this result: check each call once, and record its result once")
            if isinstance(result, BaseException):
                result, is_error = f"{type(result).__name__}: {result}", True if is_error is None else is_error
            return self._fail_open(lambda: self._take_result(waiting, result, is_error), None)

    def _take_result(self, call: PastCall, result: object, is_error: bool | None) -> LoopDetection | None:
        self._history.take(call, result, is_error=is_error)
        return self._hindsight(call)

    def _hindsight(self, last: PastCall) -> LoopDetection | None:
        """Judge the newest round by its results once it has all of them, unless its last call already has a verdict."""
        newest = self._history.newest
        if self._history.waiting() is not None or last not in newest or newest[-1].step:
            return None
        hindsight = self._judge(self._clock()).hindsight()
        self._course.see_results(hindsight.finding.kind if hindsight is not None else "")
        self._tell_course()
        if hindsight is None:
            return None
        verdict, found = self._detection(replace(hindsight, call=last.call, step=1), late=True)
        self._course.add(self._told([replace(verdict, step=0)]))
        self._has_message |= verdict.warns
        return found

    def repeats(self, call: ToolCall) -> int:
        """Return how many equal calls in a row there would be with this call, whatever their results; 1 for a new call.

        Nothing is checked or kept.
        """
        with self._lock:
            own = self._copy(call, 0)
            settings = self.settings.for_tool(own.full_name).settings
            evidence = RepeatChanging().evidence(self._judge(self._clock()).timeline, own, settings)
            return evidence.count if evidence else 1

    def new_turn(self) -> None:
        """Begin a turn after a message of the user: streaks are reset, and blocked calls may run once, from the third
        block on only after a new call. A call that then returns the same result as before is blocked again at once."""
        with self._lock:
            self.stats.mitigations += self._has_message
            self._course.speak()
            self._tell_course()
            self._new_history(self._history.blocks())

    def clear(self) -> None:
        """Forget everything, including statistics. Settings and declared tools stay."""
        with self._lock:
            self._start()

    def report_false_positive(self, detection: LoopDetection) -> None:
        """Count a wrong detection, each only once. This does not change limits; use `per_tool` settings for that."""
        with self._lock:
            if detection.number not in self._reported:
                self._bus.emit(
                    FeedbackGiven(detection.finding_id, "false_positive", detection.kind, detection.call.full_name)
                )
            self._reported.add(detection.number)
            self.stats.false_positives = len(self._reported)
