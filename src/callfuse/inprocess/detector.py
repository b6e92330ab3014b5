"""`LoopDetector`: is a call that an agent is about to run a loop, and what is to be done about it?"""

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import RLock
from typing import TypeVar

from callfuse.config import Source, load_config
from callfuse.detect.repeat import RepeatChanging
from callfuse.guard.judge import Judge
from callfuse.guard.record import past_round
from callfuse.inprocess.detection import LoopDetection, LoopStats, detection_of
from callfuse.inprocess.history import History
from callfuse.inprocess.values import arguments_text
from callfuse.model import MARKER, PastCall, ToolCall
from callfuse.observe import log
from callfuse.policy.ladder import Verdict, wanted
from callfuse.policy.settings import LoopSettings, Rung

T = TypeVar("T")

OnLoop = Callable[[LoopDetection], str | None]
"""Sees each detection before anything is done. None keeps its action; a rung's name, or `allow`, changes it."""


class LoopDetector:
    """Watches one agent run: `check` each call before it runs, `record` its result after that.

    `config` is what the middleware takes: a mapping in the shape of the configuration file
    (`{"tool_call_loop": {"mode": "graduated"}}`), the path of one, a `Config`, or None for environment and
    `CALLFUSE_CONFIG`; ConfigError names what is wrong with it. `enabled=False` turns this detector off, whatever they
    say: then it finds nothing and keeps nothing. `session` is what log lines call the run, `model` fills the texts'
    placeholder, and with `backend` (`openai`) says which settings under `models` hold. `clock` gives seconds.

    `on_loop` is called in the thread of the check, so it is a plain function. One that raises, or answers something
    that is no rung, is logged, and the action stands.

    One detector is for one run of one agent, whose calls follow each other: agents that share one would end each
    other's streaks. A lock makes every method safe to call from several threads, for tools that run side by side.
    Memory is bounded: `max_rounds` rounds, and of long arguments and results the beginning.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        enabled: bool = True,
        session: str = "-",
        model: str = "",
        backend: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if inspect.iscoroutinefunction(on_loop):
            raise TypeError(f"on_loop = {on_loop!r}: use a plain function, not an async one")
        settings = load_config(config).tool_call_loop.for_exchange(f"{backend}:{model}")
        self.settings: LoopSettings = settings if enabled else settings.model_copy(update={"enabled": False})
        self._on_loop = on_loop
        self._session = session
        self._model = model
        self._backend = backend
        self._clock = clock
        self._lock = RLock()
        self._tools: set[str] = set()
        self._failures: set[type[Exception]] = set()
        self._start()

    def _start(self) -> None:
        self.stats = LoopStats()
        self._calls = 0
        self._reported: set[int] = set()
        self._new_history()

    def _new_history(self) -> None:
        self._history = History(self.settings.max_rounds)
        self._told = False

    @property
    def enabled(self) -> bool:
        """Whether anything is found at all."""
        return self.settings.enabled

    def declare_tools(self, names: Iterable[str]) -> None:
        """Say which tools there are. Calls of any others in a row are then a loop, too (`unknown_tool`)."""
        with self._lock:
            self._tools.update(names)

    def check(self, call: ToolCall) -> LoopDetection | None:
        """Judge a call that came alone in the model's answer, before it runs; None where nothing is found.

        Its arguments are a mapping, or the JSON text that the model wrote; TypeError for anything else. Checking a
        call puts it into the history: check it once.
        """
        return self.check_round([call])[0]

    def check_round(self, calls: Sequence[ToolCall]) -> list[LoopDetection | None]:
        """Judge the calls of one answer of the model, all of them before any runs; a detection or None for each.

        Calls that come together belong together: equal ones count once, and a new one beside a repeated one is
        progress.
        """
        if not (calls and self.enabled):
            return [None] * len(calls)
        with self._lock:
            own = [self._own(call, self._calls + at) for at, call in enumerate(calls, 1)]
            self._calls += len(own)
            self.stats.calls += len(own)
            now = self._clock()
            nothing: list[tuple[Verdict, LoopDetection]] = []
            pairs = self._safely(lambda: self._detected(own, now), nothing)
            found = {verdict.call: detection for verdict, detection in pairs}
            if self._told and not found:
                self.stats.mitigations += 1
            self._told = any(detection.message for detection in found.values())
            self._history.add(past_round(own, [verdict for verdict, _ in pairs]), now)
            return [found.get(call) for call in own]

    def _own(self, call: object, number: int) -> ToolCall:
        """A copy to keep; one without an id goes by its number, where it has one."""
        if not isinstance(call, ToolCall) or not isinstance(call.name, str):
            raise TypeError(f"call = {call!r}: use ToolCall(id, name, arguments), with the tool's name as text")
        text = arguments_text(call.full_name, call.arguments)
        ignore = self.settings.for_tool(call.full_name).ignore
        return ToolCall(call.id or (f"call_{number}" if number else ""), call.name, text, call.namespace, ignore=ignore)

    def _detected(self, calls: Sequence[ToolCall], now: float) -> list[tuple[Verdict, LoopDetection]]:
        """What is found in a round, and what becomes of its calls."""
        return [self._detection(verdict) for verdict in self._judge(now).verdicts(calls)]

    def _judge(self, now: float) -> Judge:
        timeline = self._history.timeline(now, self._tools.__contains__ if self._tools else None)
        return Judge(timeline, self.settings, model=self._model, refused=self._history.refused())

    def _detection(self, verdict: Verdict, *, late: bool = False) -> tuple[Verdict, LoopDetection]:
        """A verdict as the callback leaves it, in the caller's words; logged and counted."""
        number = self.stats.detections + 1
        found = self._worded(verdict, number)
        changed = self._reviewed(verdict, found, late=late)
        if changed is not verdict:
            verdict, found = changed, self._worded(changed, number)
        self.stats.take(verdict)
        log.finding(verdict, session=self._session, model=self._model, backend=self._backend, dialect="in-process")
        return verdict, found

    def _worded(self, verdict: Verdict, number: int) -> LoopDetection:
        previous = self._history.previous(verdict.call)
        return detection_of(verdict, self.settings, model=self._model, number=number, previous=previous)

    def _reviewed(self, verdict: Verdict, found: LoopDetection, *, late: bool) -> Verdict:
        if self._on_loop is None:
            return verdict
        try:
            answer = self._on_loop(found)
            if answer is None:
                return verdict
            rung = wanted(answer)
        except Exception as error:  # noqa: BLE001 - policy stands, whatever a callback does
            log.callback(error)
            return verdict
        # What has run cannot be withheld any more.
        return replace(verdict, rung=Rung.WARN if late and rung is not None and rung.withholds else rung)

    def _safely(self, work: Callable[[], T], otherwise: T) -> T:
        """What the work gives, unless it fails: an agent must not fall over its guard. Logged once a cause."""
        try:
            return work()
        except Exception as error:
            if self.settings.fail_closed:
                raise
            self.stats.failures += 1
            if type(error) not in self._failures:
                self._failures.add(type(error))
                log.fail_open(f"{type(error).__name__}: {error}", session=self._session)
            return otherwise

    def record(
        self, result: object, call: ToolCall | None = None, *, is_error: bool | None = None
    ) -> LoopDetection | None:
        """Note what a call has brought, or the exception that it raised.

        It is the result of `call`, or else of the next call in the order of the newest round. A call that was withheld
        has none, one that is no longer kept needs none, and texts of callfuse's own are none. `is_error` says whether
        it is an error; where it is None, an exception is one, and of other results their words decide. Any type will
        do: texts and JSON values are read as they are, all else by its `repr`.

        Once the round has all its results, they may show a loop that no call could: the same error again, whatever
        the arguments. Then the detection's `message` is to go to the model with this result. ValueError for a result
        too many.
        """
        with self._lock:
            if not self.enabled or (isinstance(result, str) and result.startswith(MARKER)):
                return None
            asked = None
            if call is not None:
                asked = self._own(call, 0)
            waiting = self._history.waiting(asked)
            if waiting is None:
                if call is not None or any(one.withheld for one in self._history.newest):
                    return None
                raise ValueError("no call awaits this result: check each call once, and record its result once")
            if isinstance(result, BaseException):
                result, is_error = f"{type(result).__name__}: {result}", True if is_error is None else is_error
            return self._safely(lambda: self._recorded(waiting, result, is_error), None)

    def _recorded(self, call: PastCall, result: object, is_error: bool | None) -> LoopDetection | None:
        self._history.take(call, result, is_error=is_error)
        return self._in_hindsight(call)

    def _in_hindsight(self, last: PastCall) -> LoopDetection | None:
        """What the newest round's results show once all are there, unless its last call was found before it ran."""
        newest = self._history.newest
        if self._history.waiting() is not None or last not in newest or newest[-1].step:
            return None
        told = self._judge(self._clock()).hindsight()
        if told is None:
            return None
        verdict, found = self._detection(replace(told, call=last.call, place=1), late=True)
        self._told |= verdict.warns
        return found

    def repeats(self, call: ToolCall) -> int:
        """How many times in a row this call will have come, whatever it brought, if it comes now; 1 where it is new.

        Nothing is checked or kept.
        """
        with self._lock:
            own = self._own(call, 0)
            settings = self.settings.for_tool(own.full_name).settings
            evidence = RepeatChanging().evidence(self._judge(self._clock()).timeline, own, settings)
            return evidence.count if evidence else 1

    def new_turn(self) -> None:
        """A real user message has come: every streak starts afresh, and what was blocked is free."""
        with self._lock:
            self.stats.mitigations += self._told
            self._new_history()

    def clear(self) -> None:
        """Forget everything, statistics included; settings and declared tools stay."""
        with self._lock:
            self._start()

    def report_false_positive(self, detection: LoopDetection) -> None:
        """Count a detection that was wrong; each counts once. Nothing else changes: `per_tool` settings do that."""
        with self._lock:
            self._reported.add(detection.number)
            self.stats.false_positives = len(self._reported)
