"""The timeline: the rounds that are evidence for one exchange, and what is new in each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, TypeVarTuple

from callfuse.model.calls import ANY_TOOL, PastCall
from callfuse.model.facts import Facts
from callfuse.model.rounds import NOWHERE, Round
from callfuse.model.signature import Signature
from callfuse.model.spent import NOTHING_SPENT, Spent

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RESULTS_ON_TOOLS: Final = 250
"""How many of the newest rounds are read for tools that do not exist, if the request does not list its tools."""
MIN_WINDOW_CALLS: Final = 10
"""A window holds at least this many calls, however few its rounds."""


CutOffKey = tuple[str, bytes]
"""A call that was cut off: its tool, and a digest of the beginning of its arguments."""
NONE_CUT_OFF: Final[Mapping[CutOffKey, int]] = {}


class EarlierBlocks(NamedTuple):
    """The calls that were blocked before the last real user message, by signature, each as it last ran.

    `must_wait`: none of them may run before a new call has been executed.
    """

    calls: Mapping[Signature, PastCall]
    must_wait: bool


class Timeline:
    """The rounds since the last real user message, newest first. The rounds no longer change.

    `now`: the time of the pending round, on the same clock as the rounds' times. `has_blocks`: a call of the timeline
    was blocked. `declares`: whether the request declares a tool of this name; None if its list is not complete.
    `earlier_blocks`: the calls blocked before that message. `timed`: the times of the rounds count. `facts`: computed
    if not given. `spent`: what counts for a budget. `cut_off`: in how many consecutive answers, up to the newest, a
    call was cut off, according to the ledger.
    """

    __slots__ = (
        "_declares",
        "_lacks",
        "_memo",
        "_news",
        "_returns",
        "_window",
        "cut_off",
        "earlier_blocks",
        "facts",
        "has_blocks",
        "now",
        "rounds",
        "spent",
        "timed",
    )

    def __init__(
        self,
        newest_first: Sequence[Round],
        now: float = 0.0,
        *,
        has_blocks: bool = False,
        declares: Callable[[str], bool] | None = None,
        earlier_blocks: EarlierBlocks | None = None,
        timed: bool = True,
        facts: Facts | None = None,
        spent: Spent = NOTHING_SPENT,
        cut_off: Mapping[CutOffKey, int] = NONE_CUT_OFF,
    ) -> None:
        self.rounds = newest_first
        self.now = now
        self.has_blocks = has_blocks
        self.earlier_blocks = earlier_blocks
        self.timed = timed
        self.facts = facts or Facts(newest_first)
        self.spent = spent
        self.cut_off = cut_off
        self._declares = declares
        self._lacks: dict[str, bool] = {}
        self._news: dict[tuple[int, int], frozenset[Signature]] = {}
        self._returns: dict[tuple[int, int], bool] = {}
        self._window: tuple[int, dict[Signature, PastCall]] | None = None
        self._memo: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)

    @property
    def newest(self) -> Round | None:
        """The newest round; None if there is none."""
        return self.rounds[0] if self.rounds else None

    def after(self, calls: tuple[PastCall, ...]) -> "Timeline":
        """Return the timeline with these calls added as its newest round."""
        return self._with([Round(calls, NOWHERE, self.now), *self.rounds])

    def before(self, at: int, most: int) -> "Timeline":
        """Return the timeline as it was when round `at` (0 is the newest) came, with at most `most` rounds."""
        return self._with(self.rounds[at + 1 : at + 1 + most])

    def evidence(self) -> "Timeline":
        """Return the timeline without calls that have no name, which are not evidence."""
        if not self.facts.has_nameless:
            return self
        return self._with([named for round_ in self.rounds if (named := round_.named())], self.cut_off)

    def _with(self, rounds: Sequence[Round], cut_off: Mapping[CutOffKey, int] = NONE_CUT_OFF) -> "Timeline":
        """Return a copy of the timeline with other rounds."""
        return Timeline(
            rounds,
            self.now,
            has_blocks=self.has_blocks,
            declares=self._declares,
            earlier_blocks=self.earlier_blocks,
            timed=self.timed,
            spent=self.spent,
            cut_off=cut_off,
        )

    @property
    def lists_tools(self) -> bool:
        """Whether the request lists all its tools. If not, results show which tools do not exist."""
        return self._declares is not None

    def lacks(self, name: str) -> bool:
        """Whether a tool certainly does not exist; for `ANY_TOOL`, whether any is known not to exist."""
        if not name:
            return False
        if self._declares is None:
            missing = self.missing
            return bool(missing) if name == ANY_TOOL else name in missing
        known = self._lacks.get(name)
        if known is None:
            known = self._lacks[name] = not self._declares(name)
        return known

    @property
    def missing(self) -> frozenset[str]:
        """The tools that do not exist according to a result, and had no successful call."""
        known = self._memo.get(("missing",))
        if known is None:
            calls = [one for round_ in self.rounds[:RESULTS_ON_TOOLS] for one in round_.calls if not one.withheld]
            failed = [one for one in calls if one.failed]
            said = {one.name for one in failed if one.outcome and one.outcome.unknown_tool}
            missing = frozenset(said.difference([one.name for one in calls if one.failed is False]))
            known = self._memo["missing",] = (None, missing)
        found: frozenset[str] = known[1]
        return found

    def may_lack(self, call: PastCall) -> bool:
        """Cheap pre-check of `lacked`: False is certain, and later rounds do not change it."""
        if self._declares is not None:
            return self.lacks(call.name)
        if call.withheld:
            return True
        return call.failed is not False and (call.outcome is None or call.outcome.unknown_tool)

    def lacked(self, call: PastCall) -> bool:
        """Whether the tool of a call does not exist, and the call's own result does not say otherwise."""
        return self.may_lack(call) and self.lacks(call.name)

    def memoized(self, work_out: Callable[["Timeline", S, *Ts], T], settings: S, *about: *Ts) -> T:
        """Return `work_out(self, settings, *about)`, computed once per (function, settings, arguments)."""
        key = (work_out, id(settings), about)
        known = self._memo.get(key)
        if known is None:  # the settings are kept, too, so that no other object gets their id
            known = self._memo[key] = (settings, work_out(self, settings, *about))
        found: T = known[1]
        return found

    def knows(self, signature: Signature, size: int) -> bool:
        """Whether a call with this signature is in the window of `size` rounds."""
        return signature in self.window(size)

    def window(self, size: int) -> dict[Signature, PastCall]:
        """Return the calls of the window of `size` rounds, one for each signature."""
        if self._window is None or self._window[0] != size:
            rounds = self.rounds_of_window(size)
            self._window = size, {call.signature: call for round_ in rounds for call in round_.calls}
        return self._window[1]

    def news(self, index: int, size: int) -> frozenset[Signature]:
        """Return the signatures of round `index` (0 is the newest) that the window of `size` rounds before it lacks."""
        if index >= len(self.rounds):
            return frozenset()
        known = self._news.get((index, size))
        if known is None:
            known = self.rounds[index].signatures
            for earlier in self.rounds_of_window(size, before=index + 1):
                known -= earlier.signatures
                if not known:
                    break
            self._news[index, size] = known
        return known

    def returns(self, index: int, size: int) -> bool:
        """Whether a call of round `index` (0 is the newest) is also in the window of `size` rounds before it; computed
        once."""
        known = self._returns.get((index, size))
        if known is None:
            known = self._returns[index, size] = self._finds_return(index, size)
        return known

    def _finds_return(self, index: int, size: int) -> bool:
        if index >= len(self.rounds):
            return False
        mine = self.rounds[index].signatures
        for earlier in self.rounds_of_window(size, before=index + 1):
            calls = earlier.calls
            if calls[0].signature in mine if len(calls) == 1 else not mine.isdisjoint(earlier.signatures):
                return True
        return False

    def rounds_of_window(self, size: int, *, before: int = 0) -> Sequence[Round]:
        """Return `size` rounds, newest first, without the `before` newest; more if they have under ten executed calls.

        A withheld call was not executed: it is in the window, but does not count for its size.
        """
        rounds = self.rounds
        end = before + size
        if end >= len(rounds) or (size >= MIN_WINDOW_CALLS and not self.facts.has_gaps):
            return rounds[before:end]
        executed = [round_.executed for round_ in rounds[before:end]]
        filled, calls = len(executed) - executed.count(0), sum(executed)
        while end < len(rounds) and (filled < size or calls < MIN_WINDOW_CALLS):
            count = rounds[end].executed
            calls += count
            filled += count > 0
            end += 1
        return rounds[before:end]
