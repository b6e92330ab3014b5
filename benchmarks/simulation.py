"""Simulate streams through `callfuse serve`, event by event: how many end per second, and how long events wait.

Input: the arrival times of streams, the cost of each step of a stream, the processes and cores. Output: when each
stream got its first event and ended, and the delay of each event. Nothing is measured here; `benchmarks.predicting`
does that.

Each process does one job at a time. Busy processes share the cores equally, with at most one core each. Like an event
loop, a process works in turns: in each turn it does all jobs that have arrived, and a worker also accepts one new
stream (libuv accepts one at a time). So waiting streams hardly delay open ones.

    client, worker, vendor   the exchange; then, for each event, after a pause:
    vendor, worker, client   the event
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Literal, NamedTuple

CLIENT: Final = 0
VENDOR: Final = 1
FIRST_WORKER: Final = 2
Step = Literal["ask", "guard", "answer", "send", "pass", "read"]


class Cost(NamedTuple):
    """Seconds of CPU that a process spends on a stream: once per stream, and for each of its events."""

    exchange_s: float = 0.0
    event_s: float = 0.0

    def of(self, events: int) -> float:
        """Return the cost of a stream with `events` events."""
        return self.exchange_s + events * self.event_s


class Work(NamedTuple):
    """The cost of a stream for each process, its number of events, and the vendor's pause between two of them."""

    worker: Cost
    vendor: Cost = Cost()
    client: Cost = Cost()
    events: int = 0
    pause_s: float = 0.0


class Machine(NamedTuple):
    """The number of workers, and the cores that all processes share."""

    workers: int
    cores: float


@dataclass(slots=True)
class Stream:
    """A stream and its results. `delays_s`: those of its events, from the vendor to the client."""

    begun_s: float
    worker: int = 0
    sent: int = 0
    sent_s: deque[float] = field(default_factory=deque)
    first_s: float = 0.0
    ended_s: float = 0.0
    delays_s: list[float] = field(default_factory=list)


class Job(NamedTuple):
    """One step of a stream."""

    stream: Stream
    step: Step


def poisson(per_s: float, seconds: float, rng: random.Random) -> list[float]:
    """Return random arrival times, `per_s` per second."""
    found: list[float] = []
    at_s = rng.expovariate(per_s)
    while at_s < seconds:
        found.append(at_s)
        at_s += rng.expovariate(per_s)
    return found


def simulate(arrivals: Sequence[float], work: Work, machine: Machine) -> list[Stream]:
    """Return the results of streams that begin at these times."""
    run = _Run(work, machine)
    streams = [Stream(at_s) for at_s in arrivals]
    for stream in streams:
        run.later(stream.begun_s, Job(stream, "ask"))
    while run.turn():
        pass
    return streams


class _Run:
    """The state of a simulation: the time, future jobs, streams that no worker has accepted; and for each process its
    waiting jobs, the jobs of its turn, and the rest of the first one."""

    def __init__(self, work: Work, machine: Machine) -> None:
        self.work = work
        self.machine = machine
        self.now_s = 0.0
        self.number = 0
        self.timers: list[tuple[float, int, Job]] = []
        processes = FIRST_WORKER + machine.workers
        self.waiting: deque[Job] = deque()
        self.came: list[deque[Job]] = [deque() for _ in range(processes)]
        self.turns: list[deque[Job]] = [deque() for _ in range(processes)]
        self.left_s = [0.0] * processes
        self.had = [0] * processes
        self.busy: set[int] = set()

    def later(self, at_s: float, job: Job) -> None:
        """Begin a job at this time."""
        self.number += 1
        heappush(self.timers, (at_s, self.number, job))

    def turn(self) -> bool:
        """Advance to the next event. Returns whether there was one."""
        timer_s = self.timers[0][0] if self.timers else float("inf")
        if not self.busy:
            if not self.timers:
                return False
            self.now_s = timer_s
            self._begin(heappop(self.timers)[2])
            return True
        rate = min(1.0, self.machine.cores / len(self.busy))
        first = min(self.busy, key=self.left_s.__getitem__)
        took_s = min(self.left_s[first] / rate, max(0.0, timer_s - self.now_s))
        done = self.now_s + self.left_s[first] / rate <= timer_s
        self.now_s += took_s
        for process in self.busy:
            self.left_s[process] -= took_s * rate
        if done:
            self._end(first)
        else:
            self._begin(heappop(self.timers)[2])
        return True

    def _begin(self, job: Job) -> None:
        """Queue a job for its process, which begins at once if it is idle."""
        if job.step == "guard":
            self.waiting.append(job)
            idle = [worker for worker in range(FIRST_WORKER, len(self.came)) if worker not in self.busy]
            if idle:
                self._turn_of(min(idle, key=self.had.__getitem__))
            return
        process = self._process(job)
        self.came[process].append(job)
        if process not in self.busy:
            self._turn_of(process)

    def _turn_of(self, process: int) -> None:
        """Begin a turn with all waiting jobs, if there are any."""
        turn, self.came[process] = self.came[process], self.turns[process]
        self.turns[process] = turn
        if process >= FIRST_WORKER and self.waiting:
            job = self.waiting.popleft()
            job.stream.worker = process
            self.had[process] += 1
            turn.append(job)
        if turn:
            self.busy.add(process)
            self.left_s[process] = self._cost_s(turn[0])
        else:
            self.busy.discard(process)

    def _end(self, process: int) -> None:
        """Finish the first job of a process, begin its next one, and queue the jobs that follow."""
        turn = self.turns[process]
        job = turn.popleft()
        if turn:
            self.left_s[process] = self._cost_s(turn[0])
        else:
            self._turn_of(process)
        stream = job.stream
        match job.step:
            case "ask":
                self._begin(Job(stream, "guard"))
            case "guard":
                self._begin(Job(stream, "answer"))
            case "answer" if self.work.events:
                self._begin(Job(stream, "send"))
            case "answer":
                stream.ended_s = self.now_s
            case "send":
                stream.sent += 1
                stream.sent_s.append(self.now_s)
                self._begin(Job(stream, "pass"))
                if stream.sent < self.work.events:
                    self.later(self.now_s + self.work.pause_s, Job(stream, "send"))
            case "pass":
                self._begin(Job(stream, "read"))
            case "read":
                stream.first_s = stream.first_s or self.now_s
                stream.delays_s.append(self.now_s - stream.sent_s.popleft())
                if len(stream.delays_s) == self.work.events:
                    stream.ended_s = self.now_s

    def _process(self, job: Job) -> int:
        if job.step in ("guard", "pass"):
            return job.stream.worker
        return VENDOR if job.step in ("answer", "send") else CLIENT

    def _cost_s(self, job: Job) -> float:
        process = self._process(job)
        cost = (self.work.client, self.work.vendor)[process] if process < FIRST_WORKER else self.work.worker
        return cost.exchange_s if job.step in ("ask", "guard", "answer") else cost.event_s
