"""Loops in agents of your own process, where no wire has to be read: a detector, a tracker, guarded tools.

Everything is judged by the same detectors, settings and texts as on the wire. What the wire has in its requests comes
here from the caller: calls before they run (`check`), results after it (`record`), new user messages (`new_turn`).
"""

from callfuse.inprocess.detection import LoopDetection, PreviousResult
from callfuse.inprocess.detector import LoopDetector
from callfuse.inprocess.hint import with_loop_hint
from callfuse.inprocess.results import ToolLoopError, ToolResult
from callfuse.inprocess.stats import LoopStats
from callfuse.inprocess.tools import GuardedTools
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
