"""What a parent process hands to its workers, how long it waits for them, and what it says of those that end."""

import logging
import signal
from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any, ClassVar

import pytest
import uvicorn

from callfuse.cli import workers
from callfuse.cli.reload import Origin
from callfuse.cli.serve import ServeSetup, decode_setup, encode_setup
from callfuse.cli.workers import SILENCE_S, Pulse, Workers, how_it_ended
from callfuse.config import resolve

GIVEN = {
    "store": "redis://me:s3cret@h",
    "tool_call_loop": {
        "mode": ["warn", "block"],
        "max_repeats": 3,
        "detectors": {"cycle": False},
        "commands": False,
        "per_tool": {"search_*": {"mode": "observe", "ignore": ["at"], "detectors": {"no_news": 7}}},
        "models": {"openai:*": {"similarity_threshold": 0.5}},
    },
    "serve": {"routes": ["/own=http://h"], "log_level": "DEBUG"},
}


OPTIONS = {"store": "memory://", "serve": {"port": 1, "host": None}}


@pytest.mark.parametrize("origin", [None, Origin("c.yaml", OPTIONS, "1 2 3")])
@pytest.mark.parametrize("given", [GIVEN, {}])
def test_a_worker_has_what_its_parent_resolved(given: dict[str, object], origin: Origin | None) -> None:
    """Value by value, and it knows as well as its parent which of them are defaults."""
    settled = ServeSetup(resolve(given, {}), origin, "token-of-the-test")
    assert decode_setup(encode_setup(settled)) == settled
    config, taken = settled.resolved.config, decode_setup(encode_setup(settled)).resolved.config
    assert taken.tool_call_loop.model_fields_set == config.tool_call_loop.model_fields_set
    assert taken.tool_call_loop.model_fields_set == set(given.get("tool_call_loop", {}))  # type: ignore[call-overload]


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class Worker:
    """A worker in place of uvicorn's: a pipe whose other end a test answers at, and a process that a test ends."""

    made: ClassVar[list["Worker"]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.parent_conn, self.child_conn = Pipe()
        self.process = self
        self.exitcode: int | None = None
        self.pid = 100 + len(self.made)
        self.made.append(self)

    def answer(self, *, started: bool) -> None:
        """Answer every question so far."""
        while self.child_conn.poll():
            self.child_conn.recv()
            self.child_conn.send(started)

    def start(self) -> None:
        """It runs."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.exitcode is None

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.exitcode = -signal.SIGKILL if self.exitcode is None else self.exitcode
        self.parent_conn.close()
        self.child_conn.close()

    def join(self) -> None:
        """It has ended."""


class Ran:
    """Two workers under supervision, and how often the server was said to be ready."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.ready = clock, 0
        self.supervisor = Workers(uvicorn.Config("no:app", workers=2, log_config=None), [], self._count)
        self.supervisor.init_processes()

    def _count(self) -> None:
        self.ready += 1

    @property
    def pids(self) -> list[int | None]:
        """Those of the workers that there are."""
        return [one.pid for one in self.supervisor.processes]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ran]:
    """Two workers that begin; the signals are put back at the end."""
    clock = Clock()
    monkeypatch.setattr(Worker, "made", [])
    monkeypatch.setattr(workers, "Process", Worker)
    monkeypatch.setattr("uvicorn.supervisors.multiprocess.Process", Worker)
    monkeypatch.setattr(workers, "Pulse", lambda pipe: Pulse(pipe, clock))
    before = {number: signal.getsignal(number) for number in signal.Signals}
    yield Ran(clock)
    for number, handler in before.items():
        if handler is not signal.getsignal(number):
            signal.signal(number, handler)
    for one in Worker.made:
        one.kill()


def test_a_slow_start_is_waited_for(ran: Ran, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that imports for two minutes is left alone, without a line; it is ready when it says so, once."""
    for ran.clock.now in (0.0, 5.0, 60.0, SILENCE_S):
        ran.supervisor.keep_subprocess_alive()
    assert (ran.pids, ran.ready, caplog.messages) == ([100, 101], 0, [])
    for started, ready in ((False, 0), (True, 1), (True, 1)):
        for one in Worker.made:
            one.answer(started=started)
        ran.supervisor.keep_subprocess_alive()  # reads, and asks again
        ran.supervisor.keep_subprocess_alive()
        assert ran.ready == ready
    assert ran.pids == [100, 101]


def test_a_silent_worker_is_replaced(ran: Ran, caplog: pytest.LogCaptureFixture) -> None:
    """After the limit it is killed, which a warning says; the other one, which answers, goes on."""
    ran.supervisor.keep_subprocess_alive()
    Worker.made[1].answer(started=True)
    ran.supervisor.keep_subprocess_alive()
    ran.clock.now = SILENCE_S + 1
    Worker.made[1].answer(started=True)
    ran.supervisor.keep_subprocess_alive()
    assert ran.pids == [102, 101]
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (logging.WARNING, "worker 100 is gone: it has not answered for 120 s and is killed; starting a new one")
    ]


def test_a_worker_that_ends_is_told(ran: Ran, caplog: pytest.LogCaptureFixture) -> None:
    """With how it ended, each one: it may be the machine's memory, or a fault."""
    ran.supervisor.keep_subprocess_alive()
    Worker.made[0].exitcode = -signal.SIGKILL  # while it starts, as where memory is short
    ran.supervisor.keep_subprocess_alive()
    Worker.made[1].answer(started=True)
    ran.supervisor.keep_subprocess_alive()
    Worker.made[1].exitcode = 1
    ran.supervisor.keep_subprocess_alive()
    assert (ran.pids, ran.supervisor.exit_code) == ([102, 103], 0)
    assert caplog.messages == [
        "worker 100 is gone: it was ended by SIGKILL; starting a new one",
        "worker 101 is gone: it has ended with exit code 1; starting a new one",
    ]


def test_workers_that_cannot_start_end_the_server(ran: Ran, caplog: pytest.LogCaptureFixture) -> None:
    """Where the first ones end by themselves the next ones would, too: one error, exit code 1, and no banner."""
    ran.supervisor.keep_subprocess_alive()
    Worker.made[0].exitcode = Worker.made[1].exitcode = 3
    ran.supervisor.keep_subprocess_alive()
    assert (ran.supervisor.exit_code, ran.supervisor.should_exit.is_set(), ran.ready) == (1, True, 0)
    assert caplog.messages == ["worker 100 does not start: it has ended with exit code 3; callfuse serve exits"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_starting_worker_gets_no_hangup(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be ended by it: only one that serves has a handler."""
    sent: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, _: sent.append(pid))
    ran.supervisor.keep_subprocess_alive()
    Worker.made[1].answer(started=True)
    ran.supervisor.keep_subprocess_alive()
    ran.supervisor.handle_hup()
    assert sent == [101]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "it has ended with exit code 3"),
        (-9, "it was ended by SIGKILL"),
        (-250, "it was ended by signal 250"),
    ],
)
def test_how_a_process_ended(code: int, said: str) -> None:
    """An exit code is said as it is, a signal by its name, where it has one."""
    assert how_it_ended(code) == said
