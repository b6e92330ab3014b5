"""What the driver of a guard must do after a verdict: send bytes, and perhaps ask a model again."""

from dataclasses import dataclass
from typing import NamedTuple


class Ask(NamedTuple):
    """A request for another answer: its body, and the model to send it to (empty: the client's own). `cuts`: the
    model's last answer is still streaming, and is cut off."""

    body: bytes
    model: str = ""
    cuts: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to do after a verdict. `out`: bytes to send to the client now. `ask`: the request to send next, or None.
    `ends`: the client's answer is complete with `out`, and the model's answer need not be read any further."""

    out: bytes
    ask: Ask | None = None
    ends: bool = False
