"""The facts without which detectors cannot fire: each detector names a fact, and runs only where the fact holds.

A fact bounds a count from above: if it does not hold for a count, no evidence reaches that count. Most requests end
here. In the descriptions of facts, "enough" means this count; a pending call is included.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any, Final

from callfuse.detect.shell import KEYS
from callfuse.memo import remembered
from callfuse.model import PastCall, Round, Timeline, ToolCall
from callfuse.model.facts import Facts
from callfuse.model.outcomes import SHORT_TEXT
from callfuse.model.signature import Signature

STALE: Final = 10
"""The weight in a weighted budget of a call that returned nothing new."""
WITHIN: Final = 20
"""`known_pairs` counts how often one call had one error within so many rounds."""
LONGEST_DETAIL: Final = 4096
"""Arguments of more characters are not searched for details."""
TELLING: Final = 40
"""A result of at least so many characters is more than a yes or no, which many calls return."""
NOTES_BETWEEN: Final = 3
"""The most rounds of nothing but notes between two equal rounds."""
_ONE_ARGUMENT: Final = re.compile(r'\s*+\{\s*+"([^"\\]*+)"\s*+:\s*+("[^"\\]*+"|[^"\[{,}\s]*+)\s*+\}\s*+')
"""An object with one argument, a text or a plain value."""
LOOKED_AT: Final = 4
"""How many consecutive rounds are checked for known calls; checking more would cost more than it saves."""


class Finds(Enum):
    """Which pending calls have evidence against them."""

    EQUAL = auto()
    """Calls that equal one of `Detector.recurring`; any other call is released as soon as its arguments differ."""
    ALIKE = auto()
    """Any call of a tool, with at most the evidence of the strongest of that tool's `Detector.recurring`."""
    ANY = auto()
    """Any call, whatever its arguments: for `ANY_TOOL`, `Detector.evidence` returns the maximum over all tools."""


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """A condition that a timeline must meet before there can be evidence against a pending call.

    `may_reach(timeline, at, least, reach)`: whether a call right after round `at` (0 is the newest) could have a count
    of `least`; False is certain. `reach` is how many rounds back a looping call may have occurred. `finds`: which
    pending calls there can be evidence against. `in_a_row`: for a finding of n rounds (calls, laps), the pending round
    and the n - 2 rounds before it each have a call of an earlier round; so a new call beside the pending one shows
    progress, and voids the finding. `certain`: the finding is hard at any count, also for pollers.
    """

    may_reach: Callable[[Timeline, int, int, int], bool]
    finds: Finds = Finds.ALIKE
    in_a_row: bool = False
    certain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ResultFact:
    """A condition that a timeline must meet before results can be evidence.

    `holds(facts, least)`: whether any results of these rounds could have a count of `least`; False is certain.
    `in_newest`: whether results of the newest round could complete the loop, whatever the count. `unlisted`: only if
    the request does not list its tools. `any_arguments`: any call of the newest round's tools continues the loop;
    otherwise only a call that equals one of the evidence's.
    """

    holds: Callable[[Facts, int], bool]
    in_newest: Callable[[Timeline], bool]
    unlisted: bool = False
    any_arguments: bool = False

    def may_show(self, timeline: Timeline, least: int, *, newest: bool = False) -> bool:
        """Whether results could have a count of `least`; `newest`: with the results of the newest round as the last.
        False is certain."""
        if not timeline.rounds or (self.unlisted and timeline.lists_tools) or (newest and not self.in_newest(timeline)):
            return False
        return timeline.facts.memoized(self.holds, least)

    @property
    def onward(self) -> Fact:
        """Return the fact for a pending call that continues the loop which results have shown."""
        return Fact(lambda timeline, at, least, reach: self.may_show(timeline, least))


def _has_rounds(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return at < len(timeline.rounds)


def _repeats(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return at < len(timeline.rounds) if least <= 2 else _returns(timeline, at, least, reach)


def _returns(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    if not timeline.returns(at, reach):  # as in most timelines
        return False
    return all(timeline.returns(index, reach) for index in range(at + 1, at + min(least - 2, LOOKED_AT)))


def _is_blocked(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return timeline.earlier_blocks is not None or (timeline.has_blocks and at < len(timeline.rounds))


def _is_undeclared(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return at < len(timeline.rounds) and True in [timeline.may_lack(one) for one in timeline.rounds[at].calls]


def _has_calls(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return at < len(timeline.rounds) and 1 + timeline.facts.calls >= least


def _weighs(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return at < len(timeline.rounds) and 1 + STALE * timeline.facts.calls >= least


def _keeps_to_tool(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    rounds = timeline.rounds[at : at + least - 1]
    if not rounds or len(rounds) < least - 1:
        return False
    tools = {one.call.full_name for one in rounds[0].calls}
    for round_ in rounds[1:]:
        tools.intersection_update([one.call.full_name for one in round_.calls])
        if not tools:
            return False
    return True


def _returns_with_notes(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    """Whether one call may be in `least - 1` rounds. All of them except the first have a call from the window, and few
    other rounds are in between."""
    if not timeline.facts.memoized(_often, least - 1):  # as in most timelines
        return False
    returning, others = 0, 0
    while returning < min(least - 2, LOOKED_AT):
        if others > NOTES_BETWEEN or at >= len(timeline.rounds):
            return False
        is_back = timeline.returns(at, reach)
        returning, others, at = returning + is_back, 0 if is_back else others + 1, at + 1
    return True


def _was_cut_off(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    if not at and 1 + max(timeline.cut_off.values(), default=0) >= least:
        return True
    return at < len(timeline.rounds) and timeline.facts.memoized(_cut_off, least - 1)


def _never(timeline: Timeline, at: int, least: int, reach: int) -> bool:
    return False


ROUNDS: Final = Fact(_has_rounds)
"""There are rounds."""
REPEATS: Final = Fact(_repeats, Finds.EQUAL, in_a_row=True)
"""All rounds of the loop, except the first and the pending one, have a call from the window before them."""
RETURNS: Final = Fact(_returns, Finds.EQUAL, in_a_row=True)
"""The same, and the newest round always has such a call."""
BLOCKED: Final = Fact(_is_blocked, Finds.EQUAL, certain=True)
"""A call was blocked, in this timeline or before its user message."""
UNDECLARED: Final = Fact(_is_undeclared, Finds.ANY)
"""The newest round has a call of a tool that does not exist."""
CALLS: Final = Fact(_has_calls, Finds.ANY)
"""There are enough calls."""
WEIGHT: Final = Fact(_weighs, Finds.ANY)
"""The calls weigh enough if none of them has returned anything new."""
SAME_TOOL: Final = Fact(_keeps_to_tool)
"""All rounds of the loop, except the pending one, have a call of one tool."""
NOTED: Final = Fact(_returns_with_notes, Finds.EQUAL)
"""One call is in enough rounds, and the newest rounds have known calls, with at most a few other rounds in between."""
CUT_OFF: Final = Fact(_was_cut_off)
"""Enough calls were cut off."""
OTHERS: Final = Fact(_never)
"""The pending round has other calls: a call that is alone has no finding."""
ALONE: Final = Fact(_never)
"""The call itself, with its arguments, is the evidence: a timeline cannot foresee it."""


def succeeded(call: PastCall) -> bool:
    """Whether a call is known to have been executed without an error."""
    return not call.withheld and call.failed is False and bool(call.call.name)


def _all_succeeded(round_: Round) -> bool:
    return False not in [succeeded(one) for one in round_.calls]


def _newest_may_have_failed(timeline: Timeline) -> bool:
    return not _all_succeeded(timeline.rounds[0])


def _newest_has_failed(timeline: Timeline) -> bool:
    return True in [one.failed for one in timeline.rounds[0].calls if not one.withheld]


def _newest_is_alike(timeline: Timeline) -> bool:
    """Whether a call of the newest round may have returned the same result as the previous call of its tool."""
    newest, *earlier = timeline.rounds
    if len(newest.calls) > 1:
        return True
    one, name = newest.calls[0], newest.calls[0].call.full_name
    for round_ in earlier:
        for other in round_.calls:
            if other.call.full_name == name and not other.withheld:
                return len(round_.calls) > 1 or _may_be_alike(one, other)
    return False


def _newest_comes_again(timeline: Timeline) -> bool:
    return timeline.facts.again[0] > 0


def _failures(facts: Facts, least: int) -> bool:
    """Whether `least` consecutive rounds of one tool may have failed. Only every `least`-th round and its neighbours
    are checked: a shorter streak would not count."""
    rounds = facts.rounds
    if len(rounds) < least:
        return False
    if facts.repeated or facts.has_nameless:
        return _may_go_round(rounds, least)
    tools = [round_.calls[0].call.name for round_ in rounds]
    for at in range(least - 1, len(tools), least):
        around = tools[at - least + 1 : at + least]
        if around.count(tools[at]) >= least and True not in map(succeeded, rounds[at].calls):
            return True
    return False


def _may_go_round(rounds: Sequence[Round], shortest: int) -> bool:
    """Whether `shortest` consecutive rounds have a failure, and no new call succeeded in them. Used in place of the
    scan in `_failures` if calls have repeated."""
    first = {signature: at for at, round_ in enumerate(rounds) for signature in round_.signatures}
    goes_on = partial(_goes_on, rounds, first)
    for at in filter(goes_on, range(shortest - 1, len(rounds), shortest)):
        later = takewhile(goes_on, range(at - 1, at - shortest, -1))
        earlier = takewhile(goes_on, range(at + 1, min(len(rounds), at + shortest)))
        around = [rounds[near] for near in chain((at,), later, earlier)]
        if len(around) >= shortest and False in map(_all_succeeded, around):
            return True
    return False


def _goes_on(rounds: Sequence[Round], first: Mapping[Signature, int], at: int) -> bool:
    """Whether no new call (the first with its signature) succeeded in a round."""
    return True not in [first[one.signature] == at and succeeded(one) for one in rounds[at].calls]


def _pairs(facts: Facts, least: int) -> bool:
    rounds = facts.rounds
    if len(rounds) < least or facts.repeated < least - 1:
        return False
    first = {signature: at for at, round_ in enumerate(rounds) for signature in round_.signatures}
    again = [at for at, one in enumerate(rounds) if True in [first[own] > at for own in one.signatures]]
    near = max(WITHIN, 2 * least)
    return True in [later - at < near for at, later in zip(again, again[least - 2 :], strict=False)]


def _failing(facts: Facts, least: int) -> bool:
    """Whether `least` consecutive calls of one tool may have failed. Only every `least`-th call and its neighbours are
    checked."""
    own: dict[str, list[PastCall]] = {}
    for round_ in facts.rounds:
        for one in round_.calls:
            if not one.withheld:
                own.setdefault(one.call.full_name, []).append(one)
    for calls in own.values():
        for at in range(least - 1, len(calls), least):
            if calls[at].failed is False:
                continue
            later = takewhile(_may_have_failed, calls[at - 1 :: -1] if at else ())
            earlier = takewhile(_may_have_failed, islice(calls, at + 1, at + least))
            if 1 + sum(1 for _ in islice(chain(later, earlier), least)) >= least:
                return True
    return False


def _alike(facts: Facts, least: int) -> bool:
    """Whether `least` consecutive calls of one tool may have returned similar results. Compares pairs of neighbours, so
    close together that no streak fits between two pairs."""
    own: dict[str, list[PastCall]] = {}
    for round_ in facts.rounds:
        for one in round_.calls if len(round_.calls) == 1 else round_.distinct:
            if not one.withheld:
                own.setdefault(one.call.full_name, []).append(one)
    for calls in own.values():
        for at in range(0, len(calls) - 1 if len(calls) >= least else 0, max(1, least - 1)):
            if not _may_be_alike(calls[at], calls[at + 1]):
                continue
            is_alike = partial(_may_be_alike, calls[at])
            later = takewhile(is_alike, calls[at - 1 :: -1] if at else ())
            earlier = takewhile(is_alike, islice(calls, at + 1, at + least))
            if 1 + sum(1 for _ in islice(chain(later, earlier), least)) >= least:
                return True
    return False


def _may_be_alike(one: PastCall, other: PastCall) -> bool:
    """Whether two results are equal, or short with equal ends. Two calls' only arguments must not differ."""
    mine, theirs = _only_argument(one.call.arguments), _only_argument(other.call.arguments)
    if mine is not None and theirs is not None and mine != theirs:
        return False  # as in most pairs, and cheaper than outcomes
    came, before = one.outcome, other.outcome
    if came is None or before is None:
        return False
    if came.digest == before.digest:
        return True
    return came.text[-TELLING:] == before.text[-TELLING:] and max(len(came.text), len(before.text)) < SHORT_TEXT


def _only_argument(arguments: Any) -> str | None:
    """Return a call's only argument, in lower case and without white space; None if there are others, or if the
    argument is a command, long, or expensive to read."""
    if type(arguments) is str and len(arguments) <= LONGEST_DETAIL:
        found = _ONE_ARGUMENT.fullmatch(arguments)
        key, text = found.groups() if found else ("", None)
    elif type(arguments) is dict and len(arguments) == 1:
        ((key, text),) = arguments.items()
    else:
        return None
    return "".join(text.split()).casefold() if type(text) is str and key not in KEYS else None


def _may_have_failed(call: PastCall) -> bool:
    return call.failed is not False


def _often(facts: Facts, least: int) -> bool:
    if facts.repeated < least - 1:
        return False
    return max(Counter(chain.from_iterable([one.signatures for one in facts.rounds])).values(), default=0) >= least


def _errors(facts: Facts, least: int) -> bool:
    return least <= sum([one.failed is True and not one.withheld for round_ in facts.rounds for one in round_.calls])


def _cut_off(facts: Facts, least: int) -> bool:
    return least <= sum([is_cut_off(one) for round_ in facts.rounds for one in round_.calls])


def _unknown(facts: Facts, least: int) -> bool:
    """Whether `least` consecutive calls may be of unknown tools. Checks some rounds; no streak fits between them."""
    between = 0
    for at, round_ in enumerate(facts.rounds):
        between += len(round_.calls)
        if between < least:
            continue
        between = 0
        if _may_tell(round_) and _calls_around(facts.rounds, at, least) >= least:
            return True
    return False


def _may_tell(round_: Round) -> bool:
    """Whether a call of the round may have been of an unknown tool; a call without a name is not evidence."""
    return True in [one.withheld or not one.call.name or one.failed is not False for one in round_.calls]


def _calls_around(rounds: Sequence[Round], at: int, enough: int) -> int:
    """Count the calls of this round and of the adjacent rounds for which `_may_tell` is true; stop at `enough`."""
    calls = len(rounds[at].calls)
    for step in (-1, 1):
        beside = at + step
        while calls < enough and 0 <= beside < len(rounds) and _may_tell(rounds[beside]):
            calls += len(rounds[beside].calls)
            beside += step
    return calls


_REMEMBERED_LENGTH: Final = 16 * 1024
"""The most characters of memoized arguments; arguments that an answer's limit cuts off are long."""
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)


def is_cut_off(call: PastCall) -> bool:
    """Whether a call was executed with arguments that end before they are complete."""
    return not call.withheld and ends_early(call.call)


def ends_early(call: ToolCall) -> bool:
    """Whether the arguments of a call end before they are complete."""
    arguments = call.arguments
    return isinstance(arguments, str) and bool(call.name) and _ends_early(arguments)


@remembered(entries=64, longest=_REMEMBERED_LENGTH)
def _ends_early(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    is_open = False

    def nothing(string: re.Match[str]) -> str:
        nonlocal is_open
        is_open = string[1] != '"'
        return ""

    rest = _STRING.sub(nothing, text)
    return is_open or rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]")


FAILURES: Final = ResultFact(_failures, _newest_may_have_failed, any_arguments=True)
"""Enough rounds of one tool may have failed, and no new call succeeded in between."""
PAIRS: Final = ResultFact(_pairs, _newest_comes_again)
"""Enough rounds, close together, have a call from an earlier round."""
FAILING: Final = ResultFact(_failing, _newest_has_failed, any_arguments=True)
"""Enough consecutive calls of one tool may have failed, whatever other tools did."""
OFTEN: Final = ResultFact(_often, _newest_comes_again)
"""One call is in enough rounds."""
DETAILS: Final = ResultFact(_alike, _newest_is_alike)
"""Enough consecutive results of one tool are equal, or end alike."""
ERRORS: Final = ResultFact(_errors, _newest_has_failed)
"""Enough calls have failed."""
UNKNOWN: Final = ResultFact(_unknown, _newest_has_failed, unlisted=True)
"""Enough consecutive calls may be of unknown tools, and the request does not list its tools."""
