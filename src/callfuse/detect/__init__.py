"""Find loops in tool calls: one pure module per detector, and the engine that runs them.

`registry` lists the detectors. Nothing here reads a clock, waits or logs. The input is a timeline, a pending call and
settings; the output is findings.
"""

from callfuse.detect.engine import Engine
from callfuse.detect.pre_checks import can_fire, hindsight_can_fire
from callfuse.detect.streak import most_counted

__all__ = ["Engine", "can_fire", "hindsight_can_fire", "most_counted"]
