"""`spawn_storm`: sub-agents are started again and again with the same task.

Told by the headers of a sub-agent's first request and by what the ledger knows of those before it
(`conversations/spawns.py`). It is observed; a block is an answer of callfuse's own, which reaches the agent that has
started it as the report of its sub-agent.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class SpawnStorm(RequestRule):
    """The same opening, whatever becomes of the sub-agents."""

    kind = Kind(
        "spawn_storm",
        seen="sub-agent {count} with the same opening within five minutes",
        suggestion="Do the task without another sub-agent, or report what is known.",
        limit=SoftLimit(
            "agents",
            25,
            "Sub-agents of one session that open alike, within five minutes. Only observed, unless `spawn_storm_most` "
            "is `block`.",
            in_records=False,
        ),
        most="observe",
    )
