"""The ASGI side: what is guarded, the request's body, the calls of the wrapped app, the client's stream."""

from callfuse.asgi.middleware import CallFuseMiddleware
from callfuse.asgi.review import LoopEvent

__all__ = ["CallFuseMiddleware", "LoopEvent"]
