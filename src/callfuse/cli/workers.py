"""Supervise the worker processes of `callfuse serve`: report when one is ready or has ended, and replace it.

uvicorn's supervisor waits for a sign of life of one worker after another, five seconds by default, and then ends a
worker that is still importing, without a log line. This one does not wait: it asks a worker, and checks for the answer
in each loop, so a slow start delays neither signals nor other workers.
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
"""A worker without an answer for this long is ended. A thread of the worker answers once its imports have begun, and
starting a worker takes 1 s of CPU, so a hundredth of a core is enough."""
ANSWER_S: Final = 0.01
"""How long to wait for an answer. A running worker answers in less than a millisecond."""
FAILED_START: Final = 1
"""The exit code of `callfuse serve` if no worker can start."""


class Pulse:
    """Asks one worker for signs of life, over its pipe."""

    def __init__(self, pipe: "Connection[Any, Any]", clock: Callable[[], float] = time.monotonic) -> None:
        self._pipe = pipe
        self._clock = clock
        self._asked_at: float | None = None
        self.is_ready = False
        """Whether the worker has begun to serve."""

    def is_silent(self) -> bool:
        """Whether an answer is overdue. Asks the worker, unless an answer is pending, and reads answers."""
        with suppress(OSError, EOFError):  # the worker has closed the pipe: it is about to end
            if self._asked_at is None:
                self._asked_at = self._clock()
                self._pipe.send(b"ping")
            if self._pipe.poll(ANSWER_S):
                # The answer is whether it serves; older releases of uvicorn send b"pong".
                self.is_ready = bool(self._pipe.recv())
                self._asked_at = None
        return self._asked_at is not None and self._clock() - self._asked_at > SILENCE_S


class Workers(Multiprocess):
    """uvicorn's supervisor of workers. `on_ready` is called once, when the first worker serves."""

    def __init__(
        self, config: Config, sockets: list[socket.socket], on_ready: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(config, sockets=sockets, **options)
        self.exit_code = 0
        self._options = options
        self._on_ready: Callable[[], None] | None = on_ready
        self._pulses: dict[Process, Pulse] = {}

    def keep_subprocess_alive(self) -> None:
        """Check each worker once, and replace it if it has ended or is silent."""
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
        """Report that a worker is gone and start another, unless workers probably cannot start."""
        worker = self.processes[at]
        worker.kill()  # this also closes the pipe, if the worker has ended already
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
        """Send SIGHUP to each serving worker, which reloads its settings; uvicorn would restart all workers. The signal
        would end a starting worker, which checks the file by itself later."""
        for worker, pulse in self._pulses.items():
            if worker.pid is not None and pulse.is_ready and HANGUP is not None:
                os.kill(worker.pid, HANGUP)


def how_it_ended(exit_code: int | None) -> str:
    """Describe the end of a process, from its exit code."""
    if exit_code is None or exit_code >= 0:
        return f"it has ended with exit code {exit_code}"
    try:
        return f"it was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"it was ended by signal {-exit_code}"
