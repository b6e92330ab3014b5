"""The words of the core as values: calls, outcomes, rounds, findings, verdicts.

Built by dialects (from requests and responses) and by the ledger; read by detectors and policy. What costs something
to know, a call's signature or its outcome, is worked out when first asked for and then kept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from callfuse.calls.outcomes import Outcome, OutcomeKind, failed, outcome_of
from callfuse.calls.signature import Signature, signature_of
from callfuse.jsontext import dumps, loads

S = TypeVar("S")
T = TypeVar("T")

MARKER: Final = "[callfuse]"
"""Every text that callfuse writes into a conversation begins with this, and is recognised by it."""

MIN_WINDOW_CALLS: Final = 10
"""A window holds at least this many calls, however few its rounds."""

NOWHERE: Final = -1
"""The position of a round that the request does not hold."""


_NOTHING: Final[frozenset[str]] = frozenset()


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
        if mine == theirs or self.dropped or other.dropped or self.ignore:
            return True
        try:
            if isinstance(mine, str):
                mine, theirs = orjson.loads(mine), orjson.loads(theirs)
                return bool(mine == theirs)
            return isinstance(theirs, str) or loads(dumps(mine)) != mine  # a NaN equals nothing, itself included
        except orjson.JSONDecodeError:
            return True

    @property
    def text(self) -> str:
        """The arguments as JSON text."""
        return self.arguments if isinstance(self.arguments, str) else dumps(self.arguments).decode()

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


@dataclass(slots=True)
class Round:
    """The calls of one assistant response.

    `position` is the index of the response in the messages of the request, or NOWHERE; `time` is in seconds or None.
    """

    calls: tuple[ToolCall, ...]
    position: int
    time: float | None = None
    news: frozenset[Signature] | None = field(default=None, init=False, repr=False, compare=False)
    """What was new in it, once that has been worked out."""
    _by_signature: dict[Signature, ToolCall] | None = field(default=None, init=False, repr=False, compare=False)
    _signatures: frozenset[Signature] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def signatures(self) -> frozenset[Signature]:
        """What it calls, in no order: equal calls of one round are one."""
        if self._signatures is None:
            self._signatures = frozenset(call.signature for call in self.calls)
        return self._signatures

    @property
    def distinct(self) -> tuple[ToolCall, ...]:
        """One call of each signature, the last."""
        if len(self.calls) == 1:
            return self.calls
        return tuple({call.signature: call for call in self.calls}.values())

    def of_tool(self, name: str) -> tuple[ToolCall, ...]:
        """The distinct calls of a tool."""
        if all(call.name != name for call in self.calls):
            return ()
        return tuple(call for call in self.distinct if call.name == name)

    def find(self, name: str, signature: Signature) -> ToolCall | None:
        """The last call here of this tool with this signature."""
        if len(self.calls) == 1:
            call = self.calls[0]
            return call if call.name == name and call.signature == signature else None
        if self._by_signature is None:
            self._by_signature = {call.signature: call for call in self.calls}
        return self._by_signature.get(signature)


class Replayed(Generic[T]):
    """An iterable that can be walked any number of times, and is read from its source only as far as one walks."""

    __slots__ = ("_read", "_source")

    def __init__(self, source: Iterable[T]) -> None:
        self._read: list[T] = []
        self._source = iter(source)

    def __iter__(self) -> Iterator[T]:
        index = 0
        while (item := self.at(index)) is not None:
            yield item
            index += 1

    def at(self, index: int) -> T | None:
        """The item at this place, None where there is none."""
        read = self._read
        if len(read) <= index:
            read.extend(islice(self._source, index + 1 - len(read)))
        return read[index] if index < len(read) else None


class Timeline:
    """The rounds since the last real user message, newest first, read from their source only as far as one looks.

    `now` is the time of the pending round, in the same seconds as the rounds' times; `has_blocks` says whether a call
    of it was blocked; `declares` whether the request has a tool of this name, where its list of tools is complete.
    """

    __slots__ = ("_declares", "_lacks", "_remembered", "_rounds", "has_blocks", "now")

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
        self._lacks: dict[str, bool] = {}
        self._remembered: dict[tuple[Any, int], tuple[Any, Any]] = {}
        self._rounds = newest_first if isinstance(newest_first, Replayed) else Replayed(newest_first)

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)

    def at(self, index: int) -> Round | None:
        """The newest round but `index`, None where there is none."""
        return self._rounds.at(index)

    def after(self, calls: tuple[ToolCall, ...]) -> "Timeline":
        """The timeline one round on: these calls are its newest."""
        rounds = chain((Round(calls, NOWHERE, self.now),), self)
        return Timeline(rounds, self.now, has_blocks=self.has_blocks, declares=self._declares)

    def lacks(self, name: str) -> bool:
        """Whether it is certain that there is no such tool."""
        if not name or self._declares is None:
            return False
        known = self._lacks.get(name)
        if known is None:
            known = self._lacks[name] = not self._declares(name)
        return known

    def remembered(self, work_out: Callable[["Timeline", S], T], settings: S) -> T:
        """What this function makes of the timeline under these settings, worked out once."""
        key = (work_out, id(settings))
        if key not in self._remembered:
            self._remembered[key] = (settings, work_out(self, settings))
        found: T = self._remembered[key][1]
        return found

    def news(self, round_: Round, index: int, size: int) -> frozenset[Signature]:
        """The signatures with which this round, the newest but `index`, was new: not among the `size` rounds before."""
        if round_.news is None:
            known = self.window(size, before=index + 1)
            round_.news = frozenset(call.signature for call in round_.calls if call.signature not in known)
        return round_.news

    def may_return(self, size: int) -> bool:
        """Whether a call of the newest round may be one of the `size` rounds before, or of their last ten calls.

        False is sure. What most timelines answer, for next to nothing.
        """
        at = self._rounds.at
        if (newest := at(0)) is None:
            return False
        if len(newest.calls) > MIN_WINDOW_CALLS:
            return True  # comparing each with each would cost more than it could save
        index = calls = 0
        while (index < size or calls < MIN_WINDOW_CALLS) and (round_ := at(index := index + 1)):
            for call in round_.calls:
                calls += 1
                for mine in newest.calls:
                    if mine.name == call.name and mine.may_equal(call):
                        return True
        return False

    def window(self, size: int, *, before: int = 0) -> set[Signature]:
        """The signatures of a window."""
        return {call.signature for round_ in self.rounds_of_window(size, before=before) for call in round_.calls}

    def rounds_of_window(self, size: int, *, before: int = 0) -> list[Round]:
        """The last `size` rounds, older than the `before` newest; at least ten executed calls.

        A withheld call was not executed: it is known, but fills no window.
        """
        window: list[Round] = []
        rounds = calls = 0
        index = before
        while (rounds < size or calls < MIN_WINDOW_CALLS) and (round_ := self.at(index)) is not None:
            index += 1
            window.append(round_)
            executed = sum(not call.withheld for call in round_.calls)
            calls += executed
            rounds += bool(executed)
        return window


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector reports of a pending call.

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
