"""The facts without which a detector cannot fire: each detector declares one, and is asked only where that holds.

A fact is an upper bound: where it does not hold for a count, no evidence reaches that count. Most requests end here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import chain, takewhile
from typing import Final

from callfuse.memo import remembered
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.facts import Facts
from callfuse.model.signature import Signature

STALE: Final = 10
"""What a call counts in a weighted budget that brought nothing new."""
WITHIN: Final = 20
"""Rounds in which one call with one error comes as often as the limit of `known_pairs` says."""


class Fact(Enum):
    """What a count takes at least. The first ones are of pending calls, the others of results."""

    ROUNDS = "there are rounds"
    REPEATS = "all rounds of it but the first, and the pending one, bring a call that has come before"
    RETURNS = "the same, and the newest round brings one of the window"
    BLOCKED = "a call was blocked"
    UNDECLARED = "the newest round has a call of a tool that does not exist"
    CALLS = "there are so many calls, with the pending one"
    WEIGHT = "they weigh so much, if none has brought anything new"
    OTHERS = "the round has other calls"
    FAILURES = "so many rounds of one tool have failed, and nothing new came in between"
    PAIRS = "rounds near to one another bring calls that have come before"
    ERRORS = "so many calls have failed"
    CUT_OFF = "so many calls were cut off"
    UNKNOWN = "so many calls in a row may have been of unknown tools, and the request does not list its tools"


IN_A_ROW: Final = frozenset({Fact.REPEATS, Fact.RETURNS})
"""Facts by which a finding of n rounds (calls, laps) means that n - 2 in a row before it, and the pending one, brought
a call that had come before."""


def may_reach(fact: Fact, timeline: Timeline, at: int, least: int, reach: int) -> bool:
    """Whether a pending call right after round `at` (0 is the newest) could have a count of `least`. False is certain.

    `reach`: how many rounds back a looping call may have occurred.
    """
    if fact is Fact.BLOCKED:
        return timeline.earlier_blocks is not None or (timeline.has_blocks and at < len(timeline.rounds))
    if at >= len(timeline.rounds) or fact is Fact.OTHERS:
        return False
    if fact in IN_A_ROW:
        again = timeline.facts.again[at]
        if fact is Fact.REPEATS and least <= 2:
            return True
        return 0 < again >= least - 2 and timeline.returns(at, reach)
    if fact is Fact.UNDECLARED:
        return True in [timeline.may_lack(one) for one in timeline.rounds[at].calls]
    if fact is Fact.CALLS:
        return 1 + timeline.facts.calls >= least
    if fact is Fact.WEIGHT:
        return 1 + STALE * timeline.facts.calls >= least
    return fact not in _OF_RESULTS or may_show(fact, timeline, least)


def may_show(fact: Fact, timeline: Timeline, least: int, *, newest: bool = False) -> bool:
    """Whether results, known so far, could have a count of `least`; `newest`: those of the newest round complete it.
    False is certain."""
    rounds = timeline.rounds
    if not (least and rounds) or (fact is Fact.UNKNOWN and timeline.lists_tools):
        return False
    if newest and not (timeline.facts.again[0] if fact is Fact.PAIRS else _IN_ROUND[fact](rounds[0])):
        return False
    return timeline.facts.memoized(_OF_RESULTS[fact], least)


def succeeded(call: PastCall) -> bool:
    """Whether a call is known to have been executed without an error."""
    return not call.withheld and call.failed is False and bool(call.call.name)


def _has_not_succeeded(round_: Round) -> bool:
    return False in [succeeded(one) for one in round_.calls]


def _has_failed(round_: Round) -> bool:
    return True in [one.failed for one in round_.calls if not one.withheld]


def _has_cut_off(round_: Round) -> bool:
    return True in map(is_cut_off, round_.calls)


def _failures(facts: Facts, least: int) -> bool:
    """One round in as many as the count is looked at, and those around it: no streak is so short that it fits between
    two of them."""
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
    """As `_failures`, where calls have come again: whether so many rounds in a row, one of which failed, have no
    success in a call that was new."""
    first = {signature: at for at, round_ in enumerate(rounds) for signature in round_.signatures}
    goes_on = partial(_goes_on, rounds, first)
    for at in filter(goes_on, range(shortest - 1, len(rounds), shortest)):
        later = takewhile(goes_on, range(at - 1, at - shortest, -1))
        earlier = takewhile(goes_on, range(at + 1, min(len(rounds), at + shortest)))
        around = [rounds[near] for near in chain((at,), later, earlier)]
        if len(around) >= shortest and True in map(_has_not_succeeded, around):
            return True
    return False


def _goes_on(rounds: Sequence[Round], first: Mapping[Signature, int], at: int) -> bool:
    """Whether no call of a round has succeeded that was the first of its kind."""
    return True not in [first[one.signature] == at and succeeded(one) for one in rounds[at].calls]


def _pairs(facts: Facts, least: int) -> bool:
    rounds = facts.rounds
    if len(rounds) < least or facts.repeated < least - 1:
        return False
    first = {signature: at for at, round_ in enumerate(rounds) for signature in round_.signatures}
    again = [at for at, one in enumerate(rounds) if True in [first[own] > at for own in one.signatures]]
    near = max(WITHIN, 2 * least)
    return True in [later - at < near for at, later in zip(again, again[least - 2 :], strict=False)]


def _errors(facts: Facts, least: int) -> bool:
    return least <= sum([one.failed is True and not one.withheld for round_ in facts.rounds for one in round_.calls])


def _cut_off(facts: Facts, least: int) -> bool:
    return least <= sum([is_cut_off(one) for round_ in facts.rounds for one in round_.calls])


def _unknown(facts: Facts, least: int) -> bool:
    """Only as many rounds are looked at that no such streak fits between two of them."""
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
    """Whether a call of the round may have been of an unknown tool; a call without a name is no evidence."""
    return True in [one.withheld or not one.call.name or one.failed is not False for one in round_.calls]


def _calls_around(rounds: Sequence[Round], at: int, enough: int) -> int:
    """The calls of the rounds in a row around this one that may tell; counted no further than to `enough`."""
    calls = len(rounds[at].calls)
    for step in (-1, 1):
        beside = at + step
        while calls < enough and 0 <= beside < len(rounds) and _may_tell(rounds[beside]):
            calls += len(rounds[beside].calls)
            beside += step
    return calls


_OF_RESULTS: Final[Mapping[Fact, Callable[[Facts, int], bool]]] = {
    Fact.FAILURES: _failures,
    Fact.PAIRS: _pairs,
    Fact.ERRORS: _errors,
    Fact.CUT_OFF: _cut_off,
    Fact.UNKNOWN: _unknown,
}
"""Whether a fact of results holds anywhere in a timeline."""

_IN_ROUND: Final[Mapping[Fact, Callable[[Round], bool]]] = {
    Fact.FAILURES: _has_not_succeeded,
    Fact.ERRORS: _has_failed,
    Fact.CUT_OFF: _has_cut_off,
    Fact.UNKNOWN: _has_failed,
}
"""What the newest round must have for its results to complete a count."""

_REMEMBERED_LENGTH: Final = 16 * 1024
"""Characters of arguments; what an answer's limit cuts off is long."""
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)


def is_cut_off(call: PastCall) -> bool:
    """Whether a call was executed with arguments that end before they are complete."""
    arguments = call.call.arguments
    return isinstance(arguments, str) and not call.withheld and bool(call.name) and _ends_early(arguments)


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
