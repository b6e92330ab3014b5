"""Catch tool-call loops between AI agents and models: an ASGI middleware and a reverse proxy."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callfuse.asgi import CallFuseMiddleware, LoopEvent
    from callfuse.config import load_config
    from callfuse.errors import CallFuseError, ConfigError
    from callfuse.inprocess import (
        GuardedTools,
        LoopDetection,
        LoopDetector,
        ToolCallTracker,
        ToolLoopError,
        ToolResult,
        with_loop_hint,
    )
    from callfuse.model import ToolCall
    from callfuse.policy.presets import ToolLoopMode
    from callfuse.policy.settings import LoopSettings as ToolCallLoopConfig

__version__ = "0.2.0"

__all__ = [
    "CallFuseError",
    "CallFuseMiddleware",
    "ConfigError",
    "GuardedTools",
    "LoopDetection",
    "LoopDetector",
    "LoopEvent",
    "ToolCall",
    "ToolCallLoopConfig",
    "ToolCallTracker",
    "ToolLoopError",
    "ToolLoopMode",
    "ToolResult",
    "__version__",
    "load_config",
    "with_loop_hint",
]

_PLACES: Final = {
    "CallFuseError": "callfuse.errors",
    "CallFuseMiddleware": "callfuse.asgi",
    "ConfigError": "callfuse.errors",
    "GuardedTools": "callfuse.inprocess",
    "LoopDetection": "callfuse.inprocess",
    "LoopDetector": "callfuse.inprocess",
    "LoopEvent": "callfuse.asgi",
    "ToolCall": "callfuse.model",
    "ToolCallLoopConfig": "callfuse.policy.settings:LoopSettings",
    "ToolCallTracker": "callfuse.inprocess",
    "ToolLoopError": "callfuse.inprocess",
    "ToolLoopMode": "callfuse.policy.presets",
    "ToolResult": "callfuse.inprocess",
    "load_config": "callfuse.config",
    "with_loop_hint": "callfuse.inprocess",
}
"""The module of each public name, and its name there if it differs. A name is imported when it is first used, because
importing all of them takes half a second of CPU, which `callfuse --help` and a worker's parent do not need."""

if not TYPE_CHECKING:  # type checkers must know only the names above

    def __getattr__(name: str) -> object:
        """Import a public name, and keep it."""
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, there = place.partition(":")
        found = globals()[name] = getattr(import_module(module), there or name)
        return found

    def __dir__() -> list[str]:
        """Return the public names, imported or not, and all other attributes."""
        return sorted({*globals(), *__all__})
