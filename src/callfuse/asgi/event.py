"""What `on_loop` of the middleware sees: a verdict, and whose."""

from dataclasses import dataclass
from typing import NamedTuple

from callfuse.policy.ladder import Verdict


class Where(NamedTuple):
    """Whose exchange it is, for logs and callbacks."""

    session: str
    source: str
    lane: str
    model: str
    backend: str
    dialect: str


@dataclass(frozen=True, slots=True)
class LoopEvent(Verdict):
    """What has been found in a call and is about to be done, and where.

    `session` and `lane` are what log lines call them: an id that is no plain one is hashed. `source` is where the
    session's id was found, `fingerprint` where the client sends none.
    """

    session: str = ""
    source: str = ""
    lane: str = ""
    model: str = ""
    backend: str = ""
    dialect: str = ""
