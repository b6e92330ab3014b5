"""The rounds that are evidence for one exchange, and what is new in each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, TypeVar, TypeVarTuple

from callfuse.model.calls import ToolCall
from callfuse.model.replayed import READ_AT_ONCE, InBlocks, Replayed
from callfuse.model.rounds import NOWHERE, Round
from callfuse.model.signature import Signature

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIN_WINDOW_CALLS: Final = 10
"""A window holds at least this many calls, however few its rounds."""

_NAME: Final = attrgetter("name")


class Timeline:
    """The rounds since the last real user message, newest first, read from their source only as far as one looks.

    `now` is the time of the pending round, in the same seconds as the rounds' times; `has_blocks` says whether a call
    of it was blocked; `declares` whether the request has a tool of this name, where its list of tools is complete;
    `new_to`: no call of the newest round is one of the window of so many rounds before, as far as somebody knows.
    """

    __slots__ = (
        "_asked",
        "_calls_at_most",
        "_declares",
        "_lacks",
        "_remembered",
        "_returns",
        "_rounds",
        "_window",
        "has_blocks",
        "now",
        "unbroken",
    )

    def __init__(
        self,
        newest_first: Iterable[Round],
        now: float = 0.0,
        *,
        has_blocks: bool = False,
        declares: Callable[[str], bool] | None = None,
        new_to: int = 0,
    ) -> None:
        self.now = now
        self.has_blocks = has_blocks
        self._declares = declares
        self._asked: tuple[Signature, int, bool] | None = None
        self._calls_at_most: int | None = None
        self._lacks: dict[str, bool] = {}
        self._returns: tuple[int, bool] | None = (new_to, False) if new_to else None
        self._window: tuple[int, dict[Signature, ToolCall]] | None = None
        self.unbroken: tuple[Any, Iterable[Round]] | None = None
        """The rounds of which a streak may be, and under which settings: every detector asks for them."""
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
    def is_read(self) -> bool:
        """Whether all of its rounds have been read; those of a short one are, with this."""
        return self._rounds.at(READ_AT_ONCE - 1) is None or self._rounds.is_read

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
        if self.is_read:
            names = [call.name for round_ in self._rounds for call in round_.calls]
            if "" not in names:
                self._calls_at_most = len(names)
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
        """Whether a call is in the window of `size` rounds. A pending one is asked for more than once."""
        asked = self._asked
        if asked is None or asked[0] != signature or asked[1] != size:
            asked = self._asked = signature, size, self._has_in_window(signature, size)
        return asked[2]

    def _has_in_window(self, signature: Signature, size: int) -> bool:
        if self._window is not None and self._window[0] == size:
            return signature in self._window[1]
        for round_ in self.rounds_of_window(size):  # noqa: SIM110 - the newest has a loop's call, without a generator
            if signature in round_.signatures:
                return True
        return False

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
