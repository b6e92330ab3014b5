"""The facts without which detectors cannot fire: each detector names a fact, and runs only where the fact holds.

A fact bounds a count from above: if it does not hold for a count, no evidence reaches that. Most requests end here.
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
"""What a call counts in a weighted budget that returned nothing new."""
WITHIN: Final = 20
"""Rounds in which one call with one error comes as often as the limit of `known_pairs` says."""
LONGEST_DETAIL: Final = 4096
"""Characters of arguments beyond which nobody looks for details."""
TELLING: Final = 40
"""Characters of a result from which on it is more than a yes or no, which many calls return."""
NOTES_BETWEEN: Final = 3
"""Rounds of nothing but notes that may stand between two equal ones which are acted on."""
_ONE_ARGUMENT: Final = re.compile(r'\s*+\{\s*+"([^"\\]*+)"\s*+:\s*+("[^"\\]*+"|[^"\[{,}\s]*+)\s*+\}\s*+')
"""An object with one argument, a text or a plain value."""
LOOKED_AT: Final = 4
"""Rounds in a row that are looked at for calls that have come before; more would cost more than they spare."""


class Finds(Enum):
    """Which pending calls have evidence against them."""

    EQUAL = auto()
    """Those that equal one of `Detector.recurring`: any other leaves as soon as its arguments show that it does not."""
    ALIKE = auto()
    """Any call of a tool, but no more than the strongest of that tool's `Detector.recurring`."""
    ANY = auto()
    """Any call, whatever its arguments: for `ANY_TOOL`, `Detector.evidence` returns the maximum over all tools."""


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """A condition that a timeline must meet before there can be evidence against a pending call.

    `may_reach(timeline, at, least, reach)`: whether a call right after round `at` (0 is the newest) could have a count
    of `least`; False is certain. `reach` is how many rounds back a looping call may have occurred. `finds`: which
    pending calls there can be evidence against. `in_a_row`: a finding of n rounds (calls, laps) means that n - 2 in a
    row before it, and the pending one, had a call that had come before; so a new call beside the pending one shows
    progress, and voids the finding. `certain`: the finding is hard whatever the count, and spares no poller.
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
    """Whether a call may have come in `least - 1` rounds, where all but the first have a call from the window, with few
    other rounds in between."""
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
"""All rounds of it but the first, and the pending one, bring a call of the window before them."""
RETURNS: Final = Fact(_returns, Finds.EQUAL, in_a_row=True)
"""The same, and the newest round does, too."""
BLOCKED: Final = Fact(_is_blocked, Finds.EQUAL, certain=True)
"""A call was blocked, in this timeline or before its user message."""
UNDECLARED: Final = Fact(_is_undeclared, Finds.ANY)
"""The newest round has a call of a tool that does not exist."""
CALLS: Final = Fact(_has_calls, Finds.ANY)
"""There are so many calls, with the pending one."""
WEIGHT: Final = Fact(_weighs, Finds.ANY)
"""They weigh so much, if none has returned anything new."""
SAME_TOOL: Final = Fact(_keeps_to_tool)
"""All rounds of it but the pending one have a call of one tool."""
NOTED: Final = Fact(_returns_with_notes, Finds.EQUAL)
"""One call has come in so many rounds but one, and the newest ones return, with a few others between them at most."""
CUT_OFF: Final = Fact(_was_cut_off)
"""So many calls but one were cut off."""
OTHERS: Final = Fact(_never)
"""The pending round has other calls: nothing is found in one that is alone."""
ALONE: Final = Fact(_never)
"""The call itself, with its arguments: no timeline tells anything of it before."""


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
    """Whether `least` rounds of one tool in a row may have failed. Only every `least`-th round and its neighbours are
    looked at: a shorter streak would not count."""
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
    """Whether `shortest` rounds in a row have a failure and no success of a new call. Used in place of the scan in
    `_failures` where calls have come again."""
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
    """Whether no new call, the first with its signature, succeeded in a round."""
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
    """Whether `least` calls of one tool in a row may have failed. Only every `least`-th call starts a look around."""
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
    """Whether `least` calls of one tool in a row may have returned results that are alike. Pairs of neighbours are
    looked at, so close together that no streak fits between two pairs."""
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
    """Return a call's only argument without white space and capitals; None if there are others, or if the argument is a
    command, long, or not quickly read."""
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
    """Whether `least` calls in a row may be of unknown tools. Looks at some rounds; no streak fits between them."""
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
    """Count the calls of the unbroken rounds around this round that may tell; stop at `enough`."""
    calls = len(rounds[at].calls)
    for step in (-1, 1):
        beside = at + step
        while calls < enough and 0 <= beside < len(rounds) and _may_tell(rounds[beside]):
            calls += len(rounds[beside].calls)
            beside += step
    return calls


_REMEMBERED_LENGTH: Final = 16 * 1024
"""Characters of arguments; what an answer's limit cuts off is long."""
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
"""So many rounds of one tool have failed, and nothing new came in between."""
PAIRS: Final = ResultFact(_pairs, _newest_comes_again)
"""So many rounds near to one another bring calls that have come before."""
FAILING: Final = ResultFact(_failing, _newest_has_failed, any_arguments=True)
"""So many calls of one tool in a row have failed, whatever other tools did."""
OFTEN: Final = ResultFact(_often, _newest_comes_again)
"""One call has come in so many rounds."""
DETAILS: Final = ResultFact(_alike, _newest_is_alike)
"""So many results of one tool in a row are equal, or end alike."""
ERRORS: Final = ResultFact(_errors, _newest_has_failed)
"""So many calls have failed."""
UNKNOWN: Final = ResultFact(_unknown, _newest_has_failed, unlisted=True)
"""So many calls in a row may have been of unknown tools, and the request does not list its tools."""
