"""A call and what its client reported of it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from callfuse.model.outcomes import Outcome, OutcomeKind, failed, outcome_of
from callfuse.model.signature import Signature, canonical_value, signature_of
from callfuse.wire.jsontext import dumps, loads

ANY_TOOL: Final = "*"
"""Some tool or other, where it does not matter which."""

_NOTHING: Final[frozenset[str]] = frozenset()
_NOT_READ: Final = object()


class Result(NamedTuple):
    """What the client reported for a call, as it stands in the request: content of any shape, and an error flag."""

    content: Any
    is_error: bool | None = None


class ToolCall:
    """A complete call: id (may be empty), name, arguments: the raw text, or the value where the format is native JSON.

    `namespace` is the toolset that the name is of, where the vendor has such; `kind` the vendor's own word for this
    kind of call. `result` is the client's report, if there is one. `exact` re-reads native arguments whose integers
    the fast parser could not hold. From the ledger come `withheld` (it never reached the client, so it has no
    outcome), `blocked` (and that was the last word), `dropped` (the request does not hold it) and `place` (how far it
    had gone up the ladder; 0 where nothing was found). `ignore` names the arguments that do not tell calls apart.
    """

    __slots__ = (
        "_failed",
        "_outcome",
        "_signature",
        "_value",
        "arguments",
        "blocked",
        "dropped",
        "exact",
        "id",
        "ignore",
        "kind",
        "name",
        "namespace",
        "place",
        "result",
        "withheld",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name on every wire
        name: str,
        arguments: Any,
        result: Result | None = None,
        namespace: str = "",
        kind: str = "",
        exact: Callable[[], Any] | None = None,
        signature: Signature | None = None,
        outcome: Outcome | None = None,
        withheld: bool = False,
        blocked: bool = False,
        dropped: bool = False,
        place: int = 0,
    ) -> None:
        self.id = id
        self.name = name
        self.arguments = arguments
        self.namespace = namespace
        self.kind = kind
        self.result = result
        self.exact = exact
        self.ignore: frozenset[str] = _NOTHING
        self.withheld = withheld
        self.blocked = blocked
        self.dropped = dropped
        self.place = place
        self._signature = signature
        self._outcome = outcome
        self._failed: bool | None = None
        self._value: Any = _NOT_READ

    def __repr__(self) -> str:
        return f"ToolCall({self.id!r}, {self.name!r}, {self.arguments!r})"

    @property
    def full_name(self) -> str:
        """The tool's name, with its namespace where it has one."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def signature(self) -> Signature:
        """Tool name, with its namespace, and canonical arguments."""
        if self._signature is None:
            name = self.full_name if self.namespace else self.name
            self._signature = signature_of(name, self.arguments, self.exact, self.ignore)
        return self._signature

    def may_equal(self, other: "ToolCall") -> bool:
        """Of two calls of one tool: False only where their signatures differ, at a fraction of what a signature costs.

        Values that Python finds unequal are never equal as RFC 8785 has it; what cannot be read may be anything.
        """
        mine, theirs = self.arguments, other.arguments
        if self._signature and other._signature:
            return self._signature == other._signature
        if self.dropped or other.dropped or self.ignore or other.ignore:
            return self.signature == other.signature
        try:
            if mine == theirs:
                return True
            if isinstance(mine, str):
                return bool(self._read_value() == orjson.loads(theirs))
            return isinstance(theirs, str) or loads(dumps(mine)) != mine  # a NaN equals nothing, itself included
        except (orjson.JSONDecodeError, RecursionError):
            return True

    def _read_value(self) -> Any:
        """The value of arguments that are a text, read once: what comes last is compared with each that came before."""
        if self._value is _NOT_READ:
            self._value = orjson.loads(self.arguments)
        return self._value

    @property
    def text(self) -> str:
        """The arguments as JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        try:
            return dumps(self.arguments).decode()
        except RecursionError:
            return canonical_value(self.arguments).decode("utf-8", "replace")

    @property
    def outcome(self) -> Outcome | None:
        """What came back, or None where that is unknown."""
        if self._outcome is None and self.result is not None:
            self._outcome = outcome_of(self.result.content, self.result.is_error)
            self.result = None
        return self._outcome

    @property
    def failed(self) -> bool | None:
        """Whether an error came back, for a part of what the outcome costs; None where that is unknown."""
        if self._outcome is not None:
            return self._outcome.kind is OutcomeKind.ERROR
        if self._failed is None and self.result is not None:
            self._failed = failed(*self.result)
        return self._failed

    @property
    def seen_outcome(self) -> Outcome | None:
        """The outcome if someone has asked for it before; costs nothing."""
        return self._outcome
