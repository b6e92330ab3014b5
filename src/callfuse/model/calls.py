"""A call of the model (`ToolCall`), and the same call in later requests, with what is known about it (`PastCall`)."""

from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from types import EllipsisType
from typing import Any, Final, NamedTuple, NoReturn

from callfuse.model.outcomes import Outcome, OutcomeKind, is_failure, outcome_of
from callfuse.model.signature import Signature, canonical, canonical_value, is_rounded, signature_of, text_signature
from callfuse.wire.jsontext import dumps

ANY_TOOL: Final = "*"
"""Used in place of a tool's name if any tool is meant."""

_NOTHING: Final[frozenset[str]] = frozenset()


class Result(NamedTuple):
    """The result that a client reported for a call, as in the request: content of any shape, and an error flag."""

    content: Any
    is_error: bool | None = None


PlainResult = tuple[Any, bool | None]
"""A `Result`, or the same as a plain tuple, which costs a tenth of one."""


class SharedResult(tuple[Any, bool | None]):  # noqa: SLOT001 - a tuple can have no slots
    """A `PlainResult` that several requests contain: its outcome is computed once for all of them."""

    _outcome: Outcome | EllipsisType | None = ...
    _failed: bool | EllipsisType | None = ...

    def outcome(self, tool: str) -> Outcome | None:
        """Return the result's outcome as `outcome_of` reads it for a call of this tool."""
        if self._outcome is ...:
            self._outcome = outcome_of(*self, tool)
        return self._outcome

    @property
    def failed(self) -> bool | None:
        """Whether the result is an error, as `is_failure` reads it."""
        if self._failed is ...:
            self._failed = is_failure(*self)
        return self._failed


class _Fields:
    """The attributes of a `ToolCall`; it has this class, which is not frozen, while they are set."""

    __slots__ = (
        "_signature",
        "arguments",
        "exact",
        "full_name",
        "has_arguments",
        "id",
        "ignore",
        "kind",
        "name",
        "namespace",
    )

    id: str
    name: str
    full_name: str
    arguments: Any
    namespace: str
    kind: str
    exact: Callable[[], Any] | None
    ignore: frozenset[str]
    has_arguments: bool
    _signature: Signature | None


class ToolCall(_Fields):
    """A complete call. Frozen: assigning to an attribute raises AttributeError. Equal only to itself.

    `id` may be empty; `arguments` is the raw JSON text, or the value if the format has native JSON; `namespace` is the
    toolset that the name belongs to, if the vendor has toolsets, and `full_name` is `namespace.name`; `kind` is the
    vendor's own word for this kind of call. `exact` reads native arguments again if the fast parser may have rounded
    their integers. `ignore` names the arguments that the signature leaves out. `signature` is passed if it is known, or
    if the arguments are gone (`has_arguments` is False then).
    """

    __slots__ = ()

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name on every wire
        name: str,
        arguments: Any,
        namespace: str = "",
        kind: str = "",
        exact: Callable[[], Any] | None = None,
        ignore: frozenset[str] = _NOTHING,
        signature: Signature | None = None,
        has_arguments: bool = True,
    ) -> None:
        _set_class(self, _Fields)  # its attributes can be assigned: saves 40 us in a request with 200 messages
        self.id = id
        self.name = name
        self.full_name = f"{namespace}.{name}" if namespace else name
        self.arguments = arguments
        self.namespace = namespace
        self.kind = kind
        self.exact = exact
        self.ignore = ignore
        self._signature = signature
        self.has_arguments = has_arguments
        self.__class__ = ToolCall

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ToolCall is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ToolCall is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        return f"ToolCall({self.id!r}, {self.name!r}, {self.arguments!r})"

    @property
    def signature(self) -> Signature:
        """Tool name, with its namespace, and canonical arguments; computed on first use."""
        known = self._signature
        if known is None:
            arguments = self.arguments
            if type(arguments) is str and not self.ignore:  # so for most calls
                known = text_signature(self.full_name, arguments)
            else:
                known = signature_of(self.full_name, arguments, self.exact, self.ignore)
            _set_signature(self, known)
        return known

    @property
    def canonical(self) -> bytes:
        """The arguments as the signature contains them; calls of one tool are equal if these are."""
        return canonical(self.arguments, self.exact, self.ignore)

    @property
    def text(self) -> str:
        """The arguments as JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        try:
            return dumps(self.arguments).decode()
        except RecursionError:
            return canonical_value(self.arguments).decode("utf-8", "replace")

    def detached(self) -> "ToolCall":
        """Return a copy that no longer refers to the text that `exact` reads: if the fast parser has rounded any
        integer, the arguments are read again now."""
        if self.exact is None:
            return self
        exact = partial(_itself, self.exact()) if is_rounded(self.arguments) else None
        return ToolCall(
            self.id,
            self.name,
            self.arguments,
            self.namespace,
            self.kind,
            exact,
            self.ignore,
            self._signature,
            self.has_arguments,
        )

    def ignoring(self, names: Collection[str]) -> "ToolCall":
        """Return the call with a signature that leaves out the arguments with these names."""
        ignore = frozenset(names)
        if ignore == self.ignore or not self.has_arguments:
            return self
        return ToolCall(self.id, self.name, self.arguments, self.namespace, self.kind, self.exact, ignore)


def _itself(value: Any) -> Any:
    return value


_set_class: Final = object.__dict__["__class__"].__set__
_set_signature: Final = _Fields.__dict__["_signature"].__set__
# The only ways around `__setattr__`.


class Delivery(Enum):
    """Whether and how a call reached the client."""

    DELIVERED = "delivered"
    """The client has it, and its history contains it."""
    DROPPED = "dropped"
    """The client had it, but its history no longer contains it: only the ledger does."""
    WITHHELD = "withheld"
    """The client did not get it: it has not run, and has no outcome."""
    BLOCKED = "blocked"
    """The client did not get it, and the model was not asked again."""

    @property
    def reached_client(self) -> bool:
        """Whether the client got the call, and so has presumably run it."""
        return self in _REACHED


def lowered_step(streak: int) -> int:
    """Return the `step` of a call whose rung a cap has lowered: a negative number that encodes `streak`, the unchanged
    step of its streak."""
    return -1 - streak


_DELIVERED: Final = Delivery.DELIVERED
_REACHED: Final = frozenset({Delivery.DELIVERED, Delivery.DROPPED})


class PastCall:
    """A call of an earlier round, with what has happened to it since.

    `delivery`: whether and how the call reached the client; `withheld`: it did not. `step`: how far up the ladder the
    call went, from 1; 0 if nothing was found; below 0 if a cap lowered its rung (`lowered_step`), which does not count
    as a rung for its signature. The `outcome` is known from the ledger, or read from the `result` on first use.

    Changed only while a conversation is built, never afterwards.
    """

    __slots__ = ("_failed", "_outcome", "_recalled", "call", "delivery", "result", "step", "withheld")

    def __init__(
        self,
        call: ToolCall,
        result: PlainResult | None = None,
        outcome: Outcome | None = None,
        delivery: Delivery = _DELIVERED,
        step: int = 0,
    ) -> None:
        self.call = call
        self.result = result
        self.delivery = delivery
        self.withheld = delivery is not _DELIVERED and not delivery.reached_client
        self.step = step
        self._outcome = outcome
        self._recalled: Outcome | None = None
        self._failed: bool | None = None

    def __repr__(self) -> str:
        return f"PastCall({self.call!r}, {self.delivery.value}, {self._outcome!r})"

    @property
    def id(self) -> str:
        """The call's id."""
        return self.call.id

    @property
    def name(self) -> str:
        """The tool's name, without its namespace."""
        return self.call.name

    @property
    def full_name(self) -> str:
        """The tool's name, with its namespace if it has one."""
        return self.call.full_name

    @property
    def signature(self) -> Signature:
        """Tool name, with its namespace, and canonical arguments."""
        return self.call._signature or self.call.signature

    @property
    def stands(self) -> int:
        """The step of the streak, including this call."""
        return self.step if self.step >= 0 else -1 - self.step

    @property
    def blocked(self) -> bool:
        """Whether the call was withheld for good."""
        return self.delivery is Delivery.BLOCKED

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the call; None if it is unknown, or the call was withheld."""
        known = self._outcome
        if known is None and (self.result is not None or self._recalled is not None):
            if self.result is not None:
                shown, name = self.result, self.call.name
                known = shown.outcome(name) if isinstance(shown, SharedResult) else outcome_of(*shown, name)
                self.result = None
            known = self._outcome = known or self._recalled
        return known

    @property
    def brought(self) -> tuple[Signature, bytes] | None:
        """The signature and the outcome's digest; None if the call was withheld, or its outcome is unknown."""
        outcome = None if self.withheld else self._outcome or self.outcome
        return (self.call._signature or self.call.signature, outcome.digest) if outcome else None

    @property
    def failed(self) -> bool | None:
        """Whether the result is an error; cheaper than `outcome`. None if unknown."""
        if self._outcome is not None:
            return self._outcome.kind is OutcomeKind.ERROR
        if self._failed is None and self.result is not None:
            shown = self.result
            self._failed = shown.failed if isinstance(shown, SharedResult) else is_failure(*shown)
        if self._failed is None and self._recalled is not None:  # the same fallback as in `outcome`
            return self._recalled.kind is OutcomeKind.ERROR
        return self._failed

    def recall(self, outcome: Outcome, *, certain: bool) -> None:
        """Take the outcome from the ledger: once read, an outcome stays, whatever result the client sends now. If it is
        not `certain` that the ledger means this call, a result in the request takes precedence."""
        if certain:
            self._outcome = outcome
            self.result = None
        else:
            self._recalled = outcome
