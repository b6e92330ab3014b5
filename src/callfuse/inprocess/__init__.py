"""Find loops of agents in the same process, without a proxy: a detector, a tracker, guarded tools.

They use the same detectors, settings and texts as the middleware. The caller passes the data that the middleware reads
from requests: calls before they run (`check`), results afterwards (`record`), and new user messages (`new_turn`).
"""

from callfuse.inprocess.detection import LoopDetection, LoopStats, PreviousResult
from callfuse.inprocess.detector import LoopDetector
from callfuse.inprocess.tools import GuardedTools, ToolLoopError, ToolResult, with_loop_hint
from callfuse.inprocess.tracker import ToolCallTracker

__all__ = [
    "GuardedTools",
    "LoopDetection",
    "LoopDetector",
    "LoopStats",
    "PreviousResult",
    "ToolCallTracker",
    "ToolLoopError",
    "ToolResult",
    "with_loop_hint",
]
