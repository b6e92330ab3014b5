"""Rounds: the calls of one assistant response, where equal calls count as one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from callfuse.model.calls import Delivery, PastCall
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.signature import Signature

NOWHERE: Final = -1
"""The position of a round that the request does not contain."""


class Round:
    """The calls of one assistant response.

    `position` is the index of the response in the messages of the request, or NOWHERE; `time` is in seconds or None.
    Equal calls of one round count as one, in any order.
    """

    __slots__ = ("_brought", "_by_signature", "_signatures", "calls", "position", "time")

    def __init__(self, calls: tuple[PastCall, ...], position: int, time: float | None = None) -> None:
        self.calls = calls
        self.position = position
        self.time = time
        self._signatures: frozenset[Signature] | None = None
        self._brought: object = None
        self._by_signature: dict[Signature, PastCall] | None = None

    def __repr__(self) -> str:
        return f"Round({self.calls!r}, {self.position}, {self.time})"

    @property
    def signatures(self) -> frozenset[Signature]:
        """The signatures of the round's calls."""
        if self._signatures is None:
            calls = self.calls
            self._signatures = frozenset((calls[0].signature,) if len(calls) == 1 else [one.signature for one in calls])
        return self._signatures

    @property
    def executed(self) -> int:
        """How many of the round's calls reached the client."""
        if len(self.calls) == 1:
            return not self.calls[0].withheld
        return sum([not call.withheld for call in self.calls])

    @property
    def brought(self) -> object:
        """The calls and their outcomes as one comparable value; equal to no other if a call was withheld or an outcome
        is unknown."""
        if self._brought is None:
            if len(self.calls) == 1:
                self._brought = self.calls[0].brought or object()
            else:
                of_calls = frozenset([one.brought for one in self.calls])
                self._brought = object() if None in of_calls else of_calls
        return self._brought

    @property
    def distinct(self) -> tuple[PastCall, ...]:
        """One call of each signature."""
        return self.calls if len(self.calls) == 1 else tuple(self._one_each().values())

    def find(self, signature: Signature) -> PastCall | None:
        """Return the call with this signature; None if there is none."""
        if signature not in (self._signatures or self.signatures):
            return None
        return self.calls[0] if len(self.calls) == 1 else self._one_each().get(signature)

    def forget(self) -> None:
        """Drop all cached values that are computed from the calls, because a call has changed."""
        self._signatures = self._brought = self._by_signature = None

    def named(self) -> "Round | None":
        """Return the round without nameless calls, which are not evidence; None if it has no other calls."""
        calls = tuple([call for call in self.calls if call.name])
        if len(calls) == len(self.calls):
            return self
        return Round(calls, self.position, self.time) if calls else None

    def _one_each(self) -> dict[Signature, PastCall]:
        if self._by_signature is None:
            equal: dict[Signature, list[PastCall]] = {}
            for call in self.calls:
                equal.setdefault(call.signature, []).append(call)
            self._by_signature = {signature: _as_one(calls) for signature, calls in equal.items()}
        return self._by_signature


def _as_one(equal: Sequence[PastCall]) -> PastCall:
    """Merge equal calls of one round; different outcomes are combined (`_all_of`)."""
    if len(equal) == 1:
        return equal[0]
    executed = [call for call in equal if not call.withheld]
    last = (executed or equal)[-1]
    blocked = any(one.blocked for one in equal)
    return PastCall(
        last.call,
        outcome=_all_of([outcome for one in executed if (outcome := one.outcome)]),
        delivery=last.delivery if executed else Delivery.BLOCKED if blocked else Delivery.WITHHELD,
        step=max(one.step for one in equal),
    )


def _all_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Combine the outcomes of equal calls of one round; the result is an error only if all are errors."""
    known = {outcome.digest: outcome for outcome in outcomes}
    if len(known) <= 1:
        return next(iter(known.values()), None)
    digests = sorted(known)
    first = min(known.values(), key=lambda outcome: (outcome.kind is OutcomeKind.ERROR, outcome.digest))
    errors = {outcome.error for outcome in known.values()}
    digest = blake2b(b"".join(digests), digest_size=16).digest()
    return replace(first, digest=digest, error=first.error if len(errors) == 1 else b"")
