"""What a guard wants done after a verdict."""

from dataclasses import dataclass
from typing import NamedTuple


class Ask(NamedTuple):
    """A request for another answer: its body, and the other model that it goes to (empty: the client's)."""

    body: bytes
    model: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What goes out now, and how the model is to be asked again (None: it is not)."""

    out: bytes
    ask: Ask | None = None
