"""Finds sub-agents that are started again and again with the same task.

A sub-agent is told by its headers, for the first request of a batch job reads the same. Those that open alike are
counted together under a key of their own: of the session that has started them and of how they open.
"""

from hashlib import blake2b
from typing import Final

from callfuse.conversations.identity import Lane, SessionHeaders
from callfuse.conversations.timeline import is_unanswered
from callfuse.dialects.base import Request

KIND: Final = "spawn_storm"
WITHIN_S: Final = 300.0
"""Seconds in which sub-agents are counted: one that starts the next takes some ten."""


def spawner_of(lane: Lane, said: SessionHeaders) -> str:
    """The session that has started the agent of a request; empty where nothing says that an agent has, or which one it
    is. `said`: by its headers."""
    return (said.parent or (lane.session if said.is_sub_agent else "")) if lane.named else ""


def spawn_lane(lane: Lane, spawner: str) -> Lane:
    """The key of the sub-agents that a session has started and that open as this one."""
    return Lane(lane.credential, spawner, lane.fingerprint, KIND)


def agent_digest(lane: Lane) -> bytes:
    """What identifies a sub-agent."""
    name = f"{lane.session}\n{lane.agent}"
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def begins(request: Request) -> bool:
    """Whether a request is the first one of its conversation."""
    return not (request.chain is not None and request.chain.chained) and is_unanswered(request)
