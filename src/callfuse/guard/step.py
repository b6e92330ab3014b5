"""What a guard wants done after a verdict, and what every guard can be told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from callfuse.guard.record import Record
from callfuse.policy.ladder import Verdict


class Ask(NamedTuple):
    """A request for another answer: its body, and the other model that it goes to (empty: the client's)."""

    body: bytes
    model: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What goes out now, and how the model is to be asked again (None: it is not)."""

    out: bytes
    ask: Ask | None = None


class Guard(Protocol):
    """One client's answer, streamed or whole.

    Until the verdict any error and any limit lets everything go, unchanged. From then on the call is gone: a failure
    takes the next rung, in the end the block's text.
    """

    record: Record

    @property
    def due(self) -> bool:
        """Whether the answer is over and a verdict is wanted: `verdicts()`, then `act(verdicts)`."""
        ...

    @property
    def holding(self) -> bool:
        """Whether a stream waits that the client has seen begin."""
        ...

    @property
    def pending(self) -> bool:
        """Whether the model has been asked again and nothing of its answer has gone out: `unanswered()` is possible."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes that wait in the stream buffer."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the current answer has come to its proper end."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """What may leave of this chunk and of what waited."""
        ...

    def finish(self) -> bytes:
        """The upstream has ended its body: what may leave now."""
        ...

    def cut(self) -> bytes:
        """The upstream has broken off: what is held, and not yet judged, leaves as it came."""
        ...

    def fail(self, cause: str) -> bytes:
        """An error or a limit: what is held leaves, and everything passes from now on."""
        ...

    def verdicts(self) -> list[Verdict]:
        """What policy says about the calls that wait."""
        ...

    def act(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry the verdicts out, as policy gave them or a callback changed them."""
        ...

    def answered(self) -> None:
        """The model has begun to answer the request of the last step: what is fed now is that answer."""
        ...

    def unanswered(self) -> Step:
        """The request of the last step has failed, or its answer has before any of it went out: the next rung."""
        ...

    def settle(self) -> None:
        """The answer has been delivered whole: keep its calls, unless a verdict has done so."""
        ...
