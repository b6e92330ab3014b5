"""What the driver of a guard has to do after a verdict: send bytes, and perhaps ask a model again."""

from dataclasses import dataclass
from typing import NamedTuple


class Ask(NamedTuple):
    """A request for another answer: its body, and the model that it goes to (empty: the client's own). `cuts`: the
    model is still in the middle of its last answer."""

    body: bytes
    model: str = ""
    cuts: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """`out`: bytes for the client, to be sent now. `ask`: the request to send next; None if there is none. `ends`: the
    client's answer is complete with `out`, and the model need not go on."""

    out: bytes
    ask: Ask | None = None
    ends: bool = False
