"""`spawn_storm`: sub-agents are started again and again with the same task.

Recognised by the headers of a sub-agent's first request and by earlier first requests in the ledger
(`conversations/spawns.py`). It is observed; if it is blocked, callfuse answers by itself, and the agent that started
the sub-agent gets this answer as the sub-agent's report.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class SpawnStorm(RequestRule):
    """The kind of loop in which sub-agents start with the same opening, whatever their results."""

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
