"""Fail the start of a server if a framework builds the middleware, with wrong settings, after the server has begun.

Starlette and FastAPI build their middleware at the first ASGI event, which is the lifespan's. An exception there means
to a server that the app has no lifespan: uvicorn would serve, and answer every request with 500. Only the message
`lifespan.startup.failed` stops it, so an app that sends this message replaces the guarded one.
"""

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

from callfuse.asgi.types import Receive, Scope, Send
from callfuse.config import Config
from callfuse.errors import ConfigError
from callfuse.policy.settings import LoopSettings

logger: Final = logging.getLogger("callfuse")

_BUILDER: Final = "build_middleware_stack"
"""The method of Starlette and FastAPI that builds the middleware."""
_OFF: Final = Config(tool_call_loop=LoopSettings(enabled=False))

Init = TypeVar("Init", bound=Callable[..., None])


class FailedStart:
    """An ASGI app whose start fails because of wrong settings. Without a lifespan, each request fails."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Fail. Raises ConfigError."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed"})  # the message is in the log already
        raise ConfigError(str(self._error))


def fails_at_start(init: Init) -> Init:
    """Wrap the `__init__` of a middleware: log a ConfigError, then raise it, or make the start fail if a framework is
    building the middleware."""

    @wraps(init)
    def wrapper(self: object, app: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, app, *args, **kwargs)
        except ConfigError as error:
            logger.error("callfuse cannot be mounted with these settings: %s", error)  # noqa: TRY400 - no traceback
            if not _is_built_by_a_framework():
                raise
            init(self, FailedStart(error), _OFF)

    return cast("Init", wrapper)


def _is_built_by_a_framework() -> bool:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != _BUILDER:
        frame = frame.f_back
    return frame is not None
