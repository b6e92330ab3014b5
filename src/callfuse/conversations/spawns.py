"""Find sub-agents that are started again and again with the same task.

A sub-agent is recognised by its headers, because without them it looks like the first request of a batch job.
Sub-agents with the same opening are counted together, under a key from the session that started them and this opening.
"""

from hashlib import blake2b
from typing import Final

from callfuse.conversations.identity import Lane, SessionHeaders
from callfuse.conversations.timeline import is_unanswered
from callfuse.dialects.base import Request

KIND: Final = "spawn_storm"
WITHIN_S: Final = 300.0
"""Sub-agents are counted within so many seconds: one that starts the next takes about ten."""


def spawner_of(lane: Lane, said: SessionHeaders) -> str:
    """Return the session that has started the agent of a request; empty if the headers name no such session, or the
    lane has no session id. `said`: the session and agent in the headers."""
    return (said.parent or (lane.session if said.is_sub_agent else "")) if lane.named else ""


def spawn_lane(lane: Lane, spawner: str) -> Lane:
    """Return the key of the sub-agents that a session has started and that have the same opening as this one."""
    return Lane(lane.credential, spawner, lane.fingerprint, KIND)


def agent_digest(lane: Lane) -> bytes:
    """Return a digest that identifies a sub-agent."""
    name = f"{lane.session}\n{lane.agent}"
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def begins(request: Request) -> bool:
    """Whether a request is the first one of its conversation."""
    return not (request.chain is not None and request.chain.chained) and is_unanswered(request)
