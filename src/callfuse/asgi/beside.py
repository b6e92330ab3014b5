"""Run a task next to the app's call, which stays in the host's own task.

Under asyncio the task has no parent, so calls of the app that need no such task cost nothing extra. Other event loops,
such as trio, have no tasks without a parent: there a task group surrounds the app's call.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import anyio
import anyio.abc


class Beside:
    """Surrounds one call of the app. A task that still runs at the end of the call is cancelled. Under asyncio it must
    be stopped before."""

    __slots__ = ("_group", "_task")

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Beside":
        if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
            self._group = await anyio.create_task_group().__aenter__()
        return self

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` in a task, one at a time."""
        if self._group is not None:
            self._group.start_soon(work)
        else:
            self._task = asyncio.create_task(work())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        group, self._group, self._task = self._group, None, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)  # so that the app's error is not wrapped in a group
