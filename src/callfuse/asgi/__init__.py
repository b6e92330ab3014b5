"""The ASGI side: what is guarded, the request's body, the calls of the wrapped app, the client's stream."""

from callfuse.asgi.event import LoopEvent
from callfuse.asgi.middleware import CallFuseMiddleware

__all__ = ["CallFuseMiddleware", "LoopEvent"]
