"""Base classes for vendors that store answers by id, so that a request may contain only what is new.

After callfuse has acted, the vendor's conversation differs from the client's: a `Continuation` says how, and each
request of the chain is adapted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, cast

from callfuse.dialects.ask_again import Reply
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit

Recall = Callable[[str], ToolCall | None]
"""Finds a call by its id; returns None for unknown ids."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """How the conversation that a stateful vendor has stored differs from the client's.

    `items`: by id, what to send instead of an item of the client's history (empty: nothing). `go_on`: the id of the
    answer to continue, if it differs from the one that the client knows (empty: it does not). `unanswered`: encoded
    results for calls that the vendor stored and the client never saw.
    """

    items: Mapping[str, bytes] = field(default_factory=dict)
    go_on: str = ""
    unanswered: tuple[bytes, ...] = ()


NO_DIFFERENCE: Final = Continuation()
"""The vendor's conversation and the client's are the same."""


class StoredAnswer(NamedTuple):
    """An answer that a stateful vendor may have stored: its id, and the replies to its withheld calls."""

    id: str
    replies: tuple[Reply, ...] = ()


class StatefulVendor(Protocol):
    """A dialect whose vendor stores answers by id. Its requests are `ChainedRequest`s."""

    def answer_id(self, payload: Payload) -> str:
        """Return the answer's id, from a frame's payload or a whole body; empty if there is none."""


class ChainedRequest(Protocol):
    """A request to a stateful vendor. It may contain only what is new, and may refer to items by their ids."""

    @property
    def stored(self) -> bool:
        """Whether the vendor stores the answer and its items by id."""

    @property
    def chained(self) -> bool:
        """Whether the request continues a conversation that the vendor has stored."""

    @property
    def begins_chain(self) -> bool:
        """Whether a chain may begin with the answer, so that the answer's calls must always be read."""

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """Return the opening of the request that continues this answer; empty if the chain has another name."""

    def recall(self, calls: Recall, turn: bytes) -> None:
        """Supply calls whose results may come without them. `turn`: the digest of the user message they belong to."""

    def resume(self, known: Continuation) -> bytes:
        """Adapt the body to what the vendor has stored, given the differences known so far."""

    def continuation(self, known: Continuation, answers: Sequence[StoredAnswer]) -> Continuation:
        """Add the differences that these answers cause to the differences known so far."""

    def after_synthetic_reply(self) -> tuple[bytes, ...]:
        """Return the opening of the request that continues callfuse's own answer to this one."""

    def detach_from_synthetic_reply(self) -> Sequence[Edit]:
        """Return the edits that remove a reference to callfuse's own answer, which the vendor does not know."""

    def repair(self, body: bytes, error: bytes) -> bytes | None:
        """Repair a body that the vendor refused with this error; return None if that is impossible."""


def stateful_vendor(dialect: object) -> StatefulVendor | None:
    """Return the dialect as a `StatefulVendor` if its vendor stores answers, else None."""
    return cast(StatefulVendor, dialect) if hasattr(dialect, "answer_id") else None
