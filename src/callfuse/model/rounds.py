"""The calls of one assistant response; equal ones among them are one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from callfuse.model.calls import ToolCall
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.signature import Signature

NOWHERE: Final = -1
"""The position of a round that the request does not hold."""


@dataclass(slots=True, eq=False)
class Round:
    """The calls of one assistant response.

    `position` is the index of the response in the messages of the request, or NOWHERE; `time` is in seconds or None.
    Equal calls of one round are one piece of evidence, whatever their order.
    """

    calls: tuple[ToolCall, ...]
    position: int
    time: float | None = None
    _signatures: frozenset[Signature] | None = field(default=None, init=False, repr=False)
    _equals: dict[Signature, list[ToolCall]] | None = field(default=None, init=False, repr=False)
    _news: tuple[int, frozenset[Signature]] | None = field(default=None, init=False, repr=False)
    _said: object = field(default=None, init=False, repr=False)

    @property
    def tool(self) -> str:
        """The one tool that it calls, by its full name; empty where it calls several."""
        names = {call.full_name for call in self.calls}
        return names.pop() if len(names) == 1 else ""

    @property
    def signatures(self) -> frozenset[Signature]:
        """What it calls."""
        if self._signatures is None:
            if len(self.calls) == 1:
                (one,) = self.calls
                self._signatures = frozenset((one._signature or one.signature,))
            else:
                self._signatures = frozenset([one.signature for one in self.calls])
        return self._signatures

    @property
    def said(self) -> object:
        """What it calls and what that brought, to be compared at a glance: equal to nothing where not all of it is
        known."""
        if self._said is None:
            calls = self.calls
            if len(calls) == 1:
                (one,) = calls
                if one.withheld or not (came := one._outcome or one.outcome):
                    return object()
                self._said = one._signature or one.signature, came.digest
            else:
                known = [(one.signature, came.digest) for one in calls if not one.withheld and (came := one.outcome)]
                if len(known) < len(calls):
                    return object()
                self._said = frozenset(known)
        return self._said

    @property
    def executed(self) -> int:
        """How many of its calls reached the client."""
        if len(self.calls) == 1:
            return not self.calls[0].withheld
        return sum([not call.withheld for call in self.calls])

    @property
    def distinct(self) -> tuple[ToolCall, ...]:
        """One call of each signature."""
        if len(self.calls) == 1:
            return self.calls
        return tuple([_one(equal) for equal in self._by_signature().values()])

    def find(self, name: str, signature: Signature) -> ToolCall | None:
        """What is here of this tool with this signature."""
        if len(self.calls) == 1:
            (one,) = self.calls
            return one if one.name == name and (one._signature or one.signature) == signature else None
        equal = self._by_signature().get(signature)
        return _one(equal) if equal else None

    def _by_signature(self) -> dict[Signature, list[ToolCall]]:
        if self._equals is None:
            self._equals = {}
            for call in self.calls:
                self._equals.setdefault(call.signature, []).append(call)
        return self._equals


def _one(equal: Sequence[ToolCall]) -> ToolCall:
    """Equal calls of one round as one; where they brought different outcomes, its own is all of them together."""
    if len(equal) == 1:
        return equal[0]
    executed = [call for call in equal if not call.withheld]
    call = (executed or equal)[-1]
    return ToolCall(
        call.id,
        call.name,
        call.arguments,
        namespace=call.namespace,
        kind=call.kind,
        exact=call.exact,
        signature=call.signature,
        outcome=_all_of([outcome for one in executed if (outcome := one.outcome)]),
        withheld=not executed,
        blocked=any(one.blocked for one in equal),
        dropped=call.dropped,
        place=max(one.place for one in equal),
    )


def _all_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The outcomes of equal calls of one round as one; an error only where all are."""
    known = {outcome.digest: outcome for outcome in outcomes}
    if len(known) <= 1:
        return next(iter(known.values()), None)
    digests = sorted(known)
    first = min(known.values(), key=lambda outcome: (outcome.kind is OutcomeKind.ERROR, outcome.digest))
    errors = {outcome.error for outcome in known.values()}
    digest = blake2b(b"".join(digests), digest_size=16).digest()
    return replace(first, digest=digest, error=first.error if len(errors) == 1 else b"")
