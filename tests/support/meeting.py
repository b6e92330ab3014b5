"""One client, the guard and one app meet: what every law test starts from.

In: a dialect, a conversation and what the app answers. Out: `Meeting`, both sides' records. `given_log` collects
what was logged, which is part of what must not depend on chunks.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.asgi import JSON_REQUEST, App, Exchange, Headers, Request, drive, run
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit, stream_of, target_of
from tests.support.model import PLAIN, Answer, Call, History, Style
from tests.support.scripted import Reply, ScriptedApp, play, whole

MARK = "[callfuse]"

every_dialect = pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def reply(kit: DialectKit, answer: Answer, *, stream: bool) -> Reply:
    """An answer as the app gives it, in one chunk."""
    return Reply((stream_of(kit, answer),)) if stream else whole(kit.whole(answer))


def framewise(kit: DialectKit, answer: Answer) -> Reply:
    """A streamed answer, one frame a chunk."""
    return Reply(tuple(frame.raw for frame in kit.frames(answer)))


def ask(kit: DialectKit, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN,
        headers: Headers = JSON_REQUEST) -> Request:  # fmt: skip
    """The client's request for a conversation."""
    path, query = target_of(kit, stream=stream)
    return Request(path, kit.request(history, stream=stream, n=n, style=style), headers, query=query)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Both sides' records of one exchange."""

    client: Exchange
    app: ScriptedApp
    log: tuple[tuple[str, int, str], ...]

    @property
    def body(self) -> bytes:
        """What the client got."""
        return self.client.body

    def log_at(self, level: int) -> list[str]:
        """The messages logged at a level or above."""
        return [text for _, at, text in self.log if at >= level]


_FINDING_ID = re.compile(r"finding_id=[0-9a-f]+")
"""Each finding's is another one."""


class _Shelf(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.name, record.levelno, _FINDING_ID.sub("finding_id=0", record.getMessage())))


@contextmanager
def given_log(level: int = logging.INFO) -> Iterator[list[tuple[str, int, str]]]:
    """What callfuse logs within, as (logger, level, message); ids of findings are all 0."""
    logger, shelf = logging.getLogger("callfuse"), _Shelf()
    before = logger.level, logger.propagate
    logger.addHandler(shelf)
    logger.setLevel(level)
    logger.propagate = False  # hundreds of examples would bury a failure's report
    try:
        yield shelf.records
    finally:
        logger.removeHandler(shelf)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def meet(request: Request, replies: Sequence[Reply], ladder: str = "block", **settings: Any) -> Meeting:
    """One exchange through a guard with a fresh ledger."""
    app = play(*replies)
    with given_log() as log:
        client = run(guard(app, ladder, **settings), request, turn=lambda: app.turn)
    return Meeting(client, app, tuple(log))


def bare(request: Request, replies: Sequence[Reply]) -> Meeting:
    """The same exchange with nobody in between."""
    app = play(*replies)
    return Meeting(run(app, request, turn=lambda: app.turn), app, ())


@dataclass(slots=True)
class Session:
    """One guard, or several that take turns as workers do, over several exchanges; each exchange has its own script.

    A guard keeps its ledger. They share one where the settings name a `store`.
    """

    ladder: str = "block"
    settings: dict[str, Any] = field(default_factory=dict)
    meetings: list[Meeting] = field(default_factory=list)
    workers: int = 1
    _script: ScriptedApp = field(default_factory=play)
    _guards: list[App] = field(default_factory=list)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._script(scope, receive, send)

    async def exchange(self, request: Request, *replies: Reply) -> Meeting:
        """The next exchange of the session."""
        if not self._guards:
            self._guards = [guard(self._app, self.ladder, **self.settings) for _ in range(self.workers)]
        worker = self._guards[len(self.meetings) % self.workers]
        self._script = script = play(*replies)
        with given_log() as log:
            client = await drive(worker, request, turn=lambda: script.turn)
        self.meetings.append(Meeting(client, script, tuple(log)))
        return self.meetings[-1]

    async def close(self) -> None:
        """End the guards, as their hosts would."""
        for worker in self._guards:
            await worker({"type": "lifespan"}, _never, _nowhere)


async def _never() -> Any:
    raise AssertionError("the app asks for nothing at its end")


async def _nowhere(_: Any) -> None:
    raise AssertionError("the app has nothing to say at its end")


def in_session(talk: Callable[[Session], Any], ladder: str = "block", *, workers: int = 1, **settings: Any) -> Session:
    """Run a talk of several exchanges on one event loop."""
    session = Session(ladder, settings, workers=workers)

    async def talked() -> None:
        try:
            await talk(session)
        finally:
            await session.close()

    asyncio.run(talked())
    return session


def ids_of(calls: Sequence[Call]) -> list[bytes]:
    """The calls' ids as they would stand in a body."""
    return [call.id.encode() for call in calls]
