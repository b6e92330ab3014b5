"""What a loop is: one pure file a detector, and the engine that runs them.

Nothing here reads a clock, waits or logs: a timeline, a pending call and settings in, findings out.
"""

from callfuse.detect.engine import Engine, is_healthy

__all__ = ["Engine", "is_healthy"]
