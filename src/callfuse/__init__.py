"""callfuse catches tool-call loops between AI agents and models: an ASGI middleware and a reverse proxy."""

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

__version__ = "0.1.0"

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
