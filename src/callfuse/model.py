"""The words of the core as values: calls, outcomes, rounds, findings, verdicts.

Built by dialects (from requests and responses) and by the ledger; read by detectors and policy. What costs something
to know, a call's signature or its outcome, is worked out when first asked for and then kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar, TypeVarTuple

import orjson

from callfuse.calls.outcomes import Outcome, OutcomeKind, failed, outcome_of
from callfuse.calls.signature import Signature, canonical_value, signature_of
from callfuse.jsontext import dumps, loads

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MARKER: Final = "[callfuse]"
"""Every text that callfuse writes into a conversation begins with this, and is recognised by it."""

MIN_WINDOW_CALLS: Final = 10
"""A window holds at least this many calls, however few its rounds."""

NOWHERE: Final = -1
"""The position of a round that the request does not hold."""

READ_AT_ONCE: Final = 11
"""So many rounds at least: a window of the default size, and the newest."""

ANY_TOOL: Final = "*"
"""Some tool or other, where it does not matter which."""


_FIRST_BLOCK: Final = 16
"""Items that have been read are walked through by so many at once, then by twice as many, and so on: most look at few.
"""
_NOTHING: Final[frozenset[str]] = frozenset()
_NAME: Final = attrgetter("name")
_NOT_READ: Final = object()


class Kind(StrEnum):
    """What repeats: the detector that a finding is from."""

    REPEAT = "repeat"
    REPEAT_CHANGING = "repeat_changing"
    NO_NEWS = "no_news"
    CYCLE = "cycle"
    SAME_ERROR = "same_error"
    UNKNOWN_TOOL = "unknown_tool"
    SIMILAR = "similar"
    STAGNATION = "stagnation"
    BUDGET = "budget"


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
        *,
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
            self._signature = signature_of(self.full_name, self.arguments, self.exact, self.ignore)
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
    def signatures(self) -> frozenset[Signature]:
        """What it calls."""
        if self._signatures is None:
            calls = self.calls
            signatures = (calls[0].signature,) if len(calls) == 1 else [call.signature for call in calls]
            self._signatures = frozenset(signatures)
        return self._signatures

    @property
    def said(self) -> object:
        """What it calls and what that brought, to be compared at a glance: None where not all of it is known."""
        if self._said is None:
            calls = self.calls
            if len(calls) == 1:
                outcome = None if calls[0].withheld else calls[0].outcome
                self._said = outcome and (calls[0].signature, outcome.digest)
            else:
                known = [(one.signature, came.digest) for one in calls if not one.withheld and (came := one.outcome)]
                self._said = frozenset(known) if len(known) == len(calls) else None
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
            call = self.calls[0]
            return call if call.name == name and call.signature == signature else None
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


class Replayed(Generic[T]):
    """An iterable that can be walked any number of times, and is read from its source only as far as one walks, but
    for the first few; a list has been read."""

    __slots__ = ("_read", "_source")

    def __init__(self, source: Iterable[T]) -> None:
        is_read = isinstance(source, list)
        self._read: list[T] = [*source] if is_read else []
        self._source: Iterator[Any] | None = None if is_read else iter(source)
        """None once it is at its end."""

    def __iter__(self) -> Iterator[T]:
        return iter(self._read) if self._source is None else chain(self._read, self._rest())

    def _rest(self) -> Iterator[T]:
        """What nobody has read before, from when what somebody has is at its end."""
        read = self._read
        index = len(read)
        while index < len(read) or self._reads_to(index):
            more = read[index:]
            yield from more
            index += len(more)

    def at(self, index: int) -> T | None:
        """The item at this place, None where there is none."""
        read = self._read
        return read[index] if index < len(read) or self._reads_to(index) else None

    def slice(self, begin: int, end: int) -> list[T]:
        """The items from one place up to another, as far as there are."""
        read = self._read
        if len(read) < end and self._source is not None:
            self._reads_to(end - 1)
        return read[begin:end]

    def blocks(self) -> Iterator[list[T]]:
        """The items in lists: some of what has been read before at once, then each by itself."""
        index, size = 0, _FIRST_BLOCK
        while block := self._read[index : index + size] or self.slice(index, index + 1):
            yield block
            index += len(block)
            size *= 2

    def _reads_to(self, index: int) -> bool:
        """Read up to the item at this place; False where there is none."""
        if self._source is None:
            return False
        read = self._read
        read += islice(self._source, max(index + 1, READ_AT_ONCE) - len(read))
        if len(read) > index:
            return True
        self._source = None
        return False


class InBlocks(Replayed[T]):
    """The same, made of lists of items, each read at once."""

    __slots__ = ()

    def __init__(self, source: Iterable[list[T]]) -> None:
        super().__init__(())
        self._source = iter(source)

    def _reads_to(self, index: int) -> bool:
        read = self._read
        for items in self._source or ():
            read += items
            if len(read) > index:
                return True
        self._source = None
        return False


class Timeline:
    """The rounds since the last real user message, newest first, read from their source only as far as one looks.

    `now` is the time of the pending round, in the same seconds as the rounds' times; `has_blocks` says whether a call
    of it was blocked; `declares` whether the request has a tool of this name, where its list of tools is complete.
    """

    __slots__ = (
        "_calls_at_most",
        "_declares",
        "_lacks",
        "_remembered",
        "_returns",
        "_rounds",
        "_window",
        "has_blocks",
        "now",
    )

    def __init__(
        self,
        newest_first: Iterable[Round],
        now: float = 0.0,
        *,
        has_blocks: bool = False,
        declares: Callable[[str], bool] | None = None,
    ) -> None:
        self.now = now
        self.has_blocks = has_blocks
        self._declares = declares
        self._calls_at_most: int | None = None
        self._lacks: dict[str, bool] = {}
        self._returns: tuple[int, bool] | None = None
        self._window: tuple[int, dict[Signature, ToolCall]] | None = None
        self._remembered: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._rounds = newest_first if isinstance(newest_first, Replayed) else Replayed(newest_first)

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)

    def at(self, index: int) -> Round | None:
        """The newest round but `index`, None where there is none."""
        return self._rounds.at(index)

    def slice(self, begin: int, end: int) -> list[Round]:
        """The newest rounds from one place up to another, as far as there are."""
        return self._rounds.slice(begin, end)

    @property
    def is_short(self) -> bool:
        """Whether all of its rounds are read at once."""
        return self._rounds.at(READ_AT_ONCE - 1) is None

    def blocks(self) -> Iterator[list[Round]]:
        """The rounds in lists, newest first."""
        return self._rounds.blocks()

    def after(self, calls: tuple[ToolCall, ...]) -> "Timeline":
        """The timeline one round on: these calls are its newest."""
        rounds = chain((Round(calls, NOWHERE, self.now),), self)
        return Timeline(rounds, self.now, has_blocks=self.has_blocks, declares=self._declares)

    @property
    def calls_at_most(self) -> int:
        """Not fewer calls than there have been, for less than their number costs."""
        if self._calls_at_most is None:
            self._calls_at_most = sum([len(round_.calls) for round_ in self._rounds])
        return self._calls_at_most

    def lacks(self, name: str) -> bool:
        """Whether it is certain that there is no such tool."""
        if not name or self._declares is None:
            return False
        known = self._lacks.get(name)
        if known is None:
            known = self._lacks[name] = not self._declares(name)
        return known

    def evidence(self) -> "Timeline":
        """The timeline without calls that have no name: they are evidence of nothing."""
        if self.is_short and not _has_nameless(self._rounds):
            return self
        return Timeline(InBlocks(_named(self)), self.now, has_blocks=self.has_blocks, declares=self._declares)

    def remembered(self, work_out: Callable[["Timeline", S, *Ts], T], settings: S, *about: *Ts) -> T:
        """What this function makes of the timeline under these settings, worked out once for what it is about."""
        key = (work_out, id(settings), about)
        known = self._remembered.get(key)
        if known is None:
            known = self._remembered[key] = (settings, work_out(self, settings, *about))
        found: T = known[1]
        return found

    def knows(self, signature: Signature, size: int) -> bool:
        """Whether a call is in the window of `size` rounds."""
        return signature in self.window(size)

    def window(self, size: int) -> dict[Signature, ToolCall]:
        """The calls of the window of `size` rounds, one of each signature."""
        if self._window is None or self._window[0] != size:
            rounds = self.rounds_of_window(size)
            self._window = size, {call.signature: call for round_ in rounds for call in round_.calls}
        return self._window[1]

    def news(self, index: int, size: int) -> frozenset[Signature]:
        """The signatures with which the newest round but `index` was new: not among the `size` rounds before it."""
        round_ = self._rounds.at(index)
        if round_ is None:
            return frozenset()
        if round_._news is None or round_._news[0] != size:
            new = round_.signatures
            for earlier in self.rounds_of_window(size, before=index + 1):
                new -= earlier.signatures
                if not new:
                    break
            round_._news = size, new
        return round_._news[1]

    def may_return(self, size: int) -> bool:
        """Whether a call of the newest round may be one of the window of `size` rounds before.

        False is sure. What most timelines answer, for next to nothing.
        """
        if self._returns is None or self._returns[0] != size:
            self._returns = size, self._finds_return(size)
        return self._returns[1]

    def _finds_return(self, size: int) -> bool:
        if not (first := self._rounds.slice(0, size + 1)):  # read at once
            return False
        mine = first[0].calls
        if len(mine) > MIN_WINDOW_CALLS or not all(map(_NAME, mine)):
            return True  # comparing each with each would cost more than it could save; calls without name do not count
        rounds = calls = 0
        for round_ in islice(self._rounds, 1, None):
            if len(round_.calls) > MIN_WINDOW_CALLS:
                return True
            executed = 0
            for call in round_.calls:
                executed += not call.withheld and call.name != ""
                for one in mine:
                    if one.name == call.name and one.may_equal(call):
                        return True
            calls += executed
            rounds += executed > 0
            if rounds >= size and calls >= MIN_WINDOW_CALLS:
                break
        return False

    def rounds_of_window(self, size: int, *, before: int = 0) -> Iterator[Round]:
        """The last `size` rounds, older than the `before` newest; at least ten executed calls. Newest first.

        A withheld call was not executed: it is known, but fills no window.
        """
        rounds = self._rounds.slice(before, before + size)
        if len(rounds) < size or self._rounds.at(before + size) is None:
            return iter(rounds)
        return chain(rounds, self._rest_of_window(size, before, rounds))

    def _rest_of_window(self, size: int, before: int, newest: Sequence[Round]) -> Iterator[Round]:
        """What of a window lies behind as many rounds as it must have."""
        executed = [round_.executed for round_ in newest]
        rounds, calls = len(executed) - executed.count(0), sum(executed)
        before += size
        while (rounds < size or calls < MIN_WINDOW_CALLS) and (round_ := self._rounds.at(before)) is not None:
            yield round_
            before += 1
            calls += round_.executed
            rounds += round_.executed > 0


def _named(timeline: Timeline) -> Iterator[list[Round]]:
    for block in timeline.blocks():
        if _has_nameless(block):
            yield [named for round_ in block if (named := _with_names(round_)).calls]
        else:
            yield block


def _has_nameless(rounds: Iterable[Round]) -> bool:
    return "" in [call.name for round_ in rounds for call in round_.calls]


def _with_names(round_: Round) -> Round:
    named = tuple([call for call in round_.calls if call.name])
    return round_ if len(named) == len(round_.calls) else Round(named, round_.position, round_.time)


@dataclass(slots=True)
class Finding:
    """What a detector reports of a pending call. Nothing of it is ever changed.

    `count` and `threshold` are in the detector's unit (calls, rounds or laps) with the pending one; `window_s` is the
    longest pause between two rounds of it; `calls` are the ids it rests on, oldest first; `previous` is what came back
    last, shortened. `ends_on_news`: a new call in the same round shows progress and voids the finding; `whole_round`:
    only a round of exactly these signatures is meant. `lap` are the tools of a cycle's rounds, in order. `kinds` are
    all that hit, where there are more than one.
    """

    kind: Kind
    tool: str
    signature: Signature
    count: int
    threshold: int
    window_s: float
    hard: bool
    confidence: float = 1.0
    calls: tuple[str, ...] = ()
    previous: str = ""
    ends_on_news: bool = True
    whole_round: frozenset[Signature] | None = None
    lap: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
