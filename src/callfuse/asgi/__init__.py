"""The ASGI middleware: reads requests, calls the wrapped app, watches or guards its answers, and keeps the results."""

from callfuse.asgi.middleware import CallFuseMiddleware
from callfuse.asgi.review import LoopEvent

__all__ = ["CallFuseMiddleware", "LoopEvent"]
