"""Supervises the worker processes of `callfuse serve`: tells when one is ready and how one has ended, and replaces it.

uvicorn's supervisor waits for a sign of life of each worker in turn, five seconds by default, and ends a worker that
still imports then, without a line in the log. Here nobody is waited for: a worker is asked, and its answer is looked
for at each turn, so that a slow start holds up neither signals nor the other workers.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from uvicorn import Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from callfuse.cli.reload import HANGUP

logger = logging.getLogger("callfuse.serve")

SILENCE_S: Final = 120.0
"""A worker that answers nothing for so long is ended. It answers once its imports have begun, by a thread of its own,
and starting one takes 1 s of CPU: a hundredth of a core is enough."""
ANSWER_S: Final = 0.01
"""How long an answer is waited for: one that runs answers in less than a millisecond."""
FAILED_START: Final = 1
"""The exit code of `callfuse serve` where no worker can start."""


class Pulse:
    """Asks one worker for signs of life, over the pipe to it."""

    def __init__(self, pipe: "Connection[Any, Any]", clock: Callable[[], float] = time.monotonic) -> None:
        self._pipe = pipe
        self._clock = clock
        self._asked_at: float | None = None
        self.is_ready = False
        """Whether it has begun to serve."""

    def is_silent(self) -> bool:
        """Ask, unless an answer is still to come, and read what there is; whether an answer is overdue."""
        with suppress(OSError, EOFError):  # its end of the pipe is closed: it is about to end
            if self._asked_at is None:
                self._asked_at = self._clock()
                self._pipe.send(b"ping")
            if self._pipe.poll(ANSWER_S):
                # Whether it has started to serve; older releases of uvicorn say b"pong".
                self.is_ready = bool(self._pipe.recv())
                self._asked_at = None
        return self._asked_at is not None and self._clock() - self._asked_at > SILENCE_S


class Workers(Multiprocess):
    """uvicorn's supervisor of workers. `on_ready` is called once, when the first of them serves."""

    def __init__(
        self, config: Config, sockets: list[socket.socket], on_ready: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(config, sockets=sockets, **options)
        self.exit_code = 0
        self._options = options
        self._on_ready: Callable[[], None] | None = on_ready
        self._pulses: dict[Process, Pulse] = {}

    def keep_subprocess_alive(self) -> None:
        """Look at each worker once; one that has ended, or is silent, is replaced."""
        for at, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            pulse = self._pulses.setdefault(worker, Pulse(worker.parent_conn))
            if not worker.process.is_alive():
                self._replace(at, how_it_ended(worker.process.exitcode))
            elif pulse.is_silent():
                self._replace(at, f"it has not answered for {SILENCE_S:g} s and is killed")
            elif pulse.is_ready and self._on_ready is not None:
                self._on_ready()
                self._on_ready = None

    def _replace(self, at: int, why: str) -> None:
        """Say that a worker is gone and start another, unless none can be expected to start."""
        worker = self.processes[at]
        worker.kill()  # it also closes the pipe, if the worker has ended already
        worker.join()
        was_ready = self._pulses.pop(worker).is_ready
        if self._on_ready is not None and not was_ready and (worker.process.exitcode or 0) > 0:
            logger.error("worker %s does not start: %s; callfuse serve exits", worker.pid, why)
            self.exit_code = FAILED_START
            self.should_exit.set()
            return
        logger.warning("worker %s is gone: %s; starting a new one", worker.pid, why)
        self.processes[at] = Process(self.config, sockets=self.sockets, **self._options)
        self.processes[at].start()

    def handle_hup(self) -> None:
        """Send SIGHUP to each worker that serves, which reloads its settings; uvicorn would restart all workers. One
        that is starting would be ended by it, and looks at the file by itself later."""
        for worker, pulse in self._pulses.items():
            if worker.pid is not None and pulse.is_ready and HANGUP is not None:
                os.kill(worker.pid, HANGUP)


def how_it_ended(exit_code: int | None) -> str:
    """Describe the end of a process by its exit code."""
    if exit_code is None or exit_code >= 0:
        return f"it has ended with exit code {exit_code}"
    try:
        return f"it was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"it was ended by signal {-exit_code}"
