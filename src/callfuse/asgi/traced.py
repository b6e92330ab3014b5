"""Make a call of the app part of an exchange's span, if the model is asked again."""

from callfuse.asgi.fail_open import Stage
from callfuse.asgi.types import ASGIApp, Receive, Scope, Send
from callfuse.observe.telemetry import Traces


class TracedApp:
    """An app whose calls have the exchange's span as their parent, by the headers of the request and by the context.

    Each call must have a task of its own, whose context ends with it, and a scope of its own, whose headers change.
    """

    __slots__ = ("_app", "_stage", "_traces")

    def __init__(self, app: ASGIApp, traces: Traces, stage: Stage) -> None:
        self._app = app
        self._traces = traces
        self._stage = stage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        with self._stage:
            scope["headers"] = self._traces.continue_in(scope["headers"])
        await self._app(scope, receive, send)
