"""Settings under test, and the middleware under test."""

from collections.abc import Callable
from typing import Any

from callfuse import CallFuseMiddleware
from tests.support.asgi import App

LADDERS: dict[str, str | list[str]] = {
    "observe": "observe",
    "warn": "warn",
    "block": "block",
    "chance_then_block": "chance_then_block",
    "steer twice": ["steer", "steer", "block"],
    "graduated": "graduated",
}
QUIET = ("observe", "warn", "graduated")
"""The ladders whose first rung leaves the response alone."""
ACTING = tuple(name for name in LADDERS if name not in QUIET)


def settings(ladder: str = "block", **more: Any) -> dict[str, Any]:
    """A configuration in the shape of the file."""
    return {"tool_call_loop": {"mode": LADDERS[ladder], **more}}


def guard(app: App, ladder: str = "block", *, on_loop: Callable[[Any], Any] | None = None, **more: Any) -> App:
    """The app behind a guard with a fresh ledger."""
    guarded: App = CallFuseMiddleware(app, settings(ladder, **more), on_loop=on_loop)
    return guarded
