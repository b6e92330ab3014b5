"""The tests' own reading of when a call is a loop: `repeat` and `repeat_changing` for simple histories.

In: a history and the calls of one pending answer. Out: the pending calls that are loops. Simple means: at most ten
rounds since the last user message, every call answered, equal calls of one round answered equally, no pollers.

    in one answer     the n-th equal call and those behind it, whatever the history and the other calls are
    repeat            n rounds in a row bring the call, the n-th being the pending one, all with the same outcome; after
                      rounds with another outcome there must be two
    repeat_changing   the same, whatever the outcomes
    progress          a round that brings a call not seen before ends the streaks of the others and counts for none;
                      for that new call it is the first round of its own streak
"""

from collections import Counter
from collections.abc import Sequence

from tests.support.model import Call, History, Round, User

Signature = tuple[str, str]
Outcomes = dict[Signature, str]


def live_rounds(history: History) -> list[Outcomes]:
    """The rounds since the last user message, oldest first, each as its calls' outcomes."""
    last = max((at for at, turn in enumerate(history.turns) if isinstance(turn, User)), default=-1)
    rounds = [turn for turn in history.turns[last + 1 :] if isinstance(turn, Round)]
    return [{call.signature: result for call, result in zip(turn.calls, turn.results, strict=True)} for turn in rounds]


def streak(rounds: Sequence[Outcomes], call: Signature, *, equal_outcomes: bool) -> int:
    """How many rounds in a row, up to the last one, count for this call."""
    count = 0
    for at in range(len(rounds) - 1, -1, -1):
        before = set().union(*rounds[:at])
        if call not in rounds[at] or (equal_outcomes and rounds[at][call] != rounds[-1][call]):
            return count
        if any(other not in before for other in rounds[at]) and call in before:
            return count
        count += 1
    return count


def loops(history: History, pending: Sequence[Call], *, repeats: int = 3, changing: int = 6) -> tuple[Call, ...]:
    """The pending calls that are loops, in their order."""
    rounds = live_rounds(history)
    known = set().union(*rounds)
    brings_news = any(call.signature not in known for call in pending)
    return tuple(
        call
        for at, call in enumerate(pending)
        if 1 + [other.signature for other in pending[:at]].count(call.signature) >= repeats
        or (not brings_news and _goes_on(rounds, call.signature, repeats=repeats, changing=changing))
    )


def may_loop(history: History, name: str, *, repeats: int = 3, changing: int = 6) -> bool:
    """Whether any arguments could make a call of this tool a loop."""
    rounds = live_rounds(history)
    return any(
        signature[0] == name and _goes_on(rounds, signature, repeats=repeats, changing=changing)
        for signature in set().union(*rounds)
    )


def may_be_too_many(pending: Sequence[Call], *, repeats: int = 3) -> tuple[Call, ...]:
    """The pending calls that some arguments would make the n-th equal one of their answer, in their order."""
    before = [Counter(call.signature for call in pending[:at]) for at in range(len(pending))]
    return tuple(
        call
        for equal, call in zip(before, pending, strict=True)
        if any(signature[0] == call.name and count + 1 >= repeats for signature, count in equal.items())
    )


def _goes_on(rounds: Sequence[Outcomes], call: Signature, *, repeats: int, changing: int) -> bool:
    """Whether one more round with this call would be a loop."""
    equal = streak(rounds, call, equal_outcomes=True)
    whole = streak(rounds, call, equal_outcomes=False)
    return (1 + equal >= repeats and (equal == whole or equal > 1)) or 1 + whole >= changing
