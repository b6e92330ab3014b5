"""Settings under test, and the middleware under test."""

from collections.abc import Callable
from typing import Any, Final

from callfuse import CallFuseMiddleware
from callfuse.conversations.ledger import Ledger
from callfuse.policy.sections import LIMITS
from tests.support.asgi import App

LADDERS: dict[str, str | list[str]] = {
    "observe": "observe",
    "warn": "warn",
    "block": "block",
    "chance_then_block": "chance_then_block",
    "steer twice": ["steer", "steer", "block"],
    "force_text": ["force_text", "block"],
    "escalate": ["escalate", "block"],
    "every rung": ["steer", "force_text", "escalate", "block"],
    "there and back": ["escalate", "steer", "block"],
    "steer": ["steer"],
    "text at last": ["warn", "force_text"],
    "another at last": ["steer", "escalate"],
    "graduated": "graduated",
    "observe at first": ["observe", "warn"],
    "a warning between": ["steer", "warn", "steer", "block"],
}
ENDLESS = ("steer", "text at last", "another at last")
"""The ladders that have no block."""
ONLY_REPEATS: dict[str, Any] = {"detectors": dict.fromkeys(LIMITS, False)}
"""Where an oracle counts equal calls in a row and nothing else."""
QUIET = ("observe", "observe at first", "warn", "text at last", "graduated")
"""The ladders whose first rung leaves the response alone."""
HALTING = ("a warning between",)
"""The ladders that let a call go after one has been withheld."""
ACTING = tuple(name for name in LADDERS if name not in (*QUIET, *HALTING))
OTHER_MODEL = "other-test"
"""The model that `escalate` asks."""


def tool_call_loop(mode: str | list[str], **more: Any) -> dict[str, Any]:
    """The block of the settings; a ladder that escalates has a model to escalate to."""
    other = {"escalate_model": OTHER_MODEL} if "escalate" in mode else {}
    return {"mode": mode, **other, **more}


PATIENT: Final = {"store_timeout_s": 60.0}
"""A busy machine makes a store slow, and a test is not to go on without it."""


def settings(ladder: str = "block", **more: Any) -> dict[str, Any]:
    """A configuration in the shape of the file."""
    return {"tool_call_loop": tool_call_loop(LADDERS[ladder], **more)}


def guard(
    app: App,
    ladder: str = "block",
    *,
    on_loop: Callable[[Any], Any] | None = None,
    store: Ledger | str | None = None,
    **more: Any,
) -> App:
    """The app behind a guard, with a fresh ledger where none is given."""
    guarded: App = CallFuseMiddleware(app, settings(ladder, **more) | PATIENT, on_loop=on_loop, store=store)
    return guarded
