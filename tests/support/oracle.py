"""The tests' own reading of when a call is withheld: `repeat` for simple histories.

In: a history and the calls of one pending answer. Out: the pending calls that are loops. Simple means: at most ten
rounds since a person's last message, every call answered, equal calls of one round answered equally, no pollers, and
no message in a harness's words.

    in one answer     the n-th equal call and those behind it, whatever the other calls are, where the call has come
                      before; of a new one the 2 n-th
    repeat            n rounds in a row bring the call, the n-th being the pending one, all with the same outcome; after
                      rounds with another outcome there must be two
    progress          a round that brings a call not seen before ends the streaks of the others and counts for none;
                      for that new call it is the first round of its own streak
    a person          a message behind results is one's, unless it is said there again
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from tests.support.model import Call, History, Round, User

Signature = tuple[str, str]
Outcomes = dict[Signature, str]
T = TypeVar("T")


def live_rounds(history: History) -> list[Outcomes]:
    """The rounds since a person's last message, oldest first, each as its calls' outcomes."""
    last = max(_typed(history), default=-1)
    rounds = [turn for turn in history.turns[last + 1 :] if isinstance(turn, Round)]
    return [{call.signature: result for call, result in zip(turn.calls, turn.results, strict=True)} for turn in rounds]


def _typed(history: History) -> Iterator[int]:
    """The places of a person's messages. One behind results is compared with those behind the results before."""
    before, said = set[str](), set[str]()
    has_results = False
    for at, turn in enumerate(history.turns):
        if isinstance(turn, Round):
            before, said = (said, set()) if said else (before, said)
            has_results = True
        elif isinstance(turn, User):
            if not (has_results and turn.text in before):
                yield at
            if has_results:
                said.add(turn.text)


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


def loops(history: History, pending: Sequence[Call], *, repeats: int = 3) -> tuple[Call, ...]:
    """The pending calls that are loops, in their order."""
    rounds = live_rounds(history)
    known = set().union(*rounds)
    brings_news = any(call.signature not in known for call in pending)
    signatures = [call.signature for call in pending]
    return tuple(
        call
        for at, (call, own) in enumerate(zip(pending, signatures, strict=True))
        if 1 + signatures[:at].count(own) >= _most(own, known, repeats)
        or (not brings_news and _goes_on(rounds, own, repeats))
    )


def may_loop(history: History, name: str, *, repeats: int = 3) -> bool:
    """Whether any arguments could make a call of this tool a loop."""
    rounds = live_rounds(history)
    return any(signature[0] == name and _goes_on(rounds, signature, repeats) for signature in set().union(*rounds))


def may_be_too_many(history: History, pending: Sequence[Call], *, repeats: int = 3) -> tuple[Call, ...]:
    """The pending calls that some arguments would make one too many of their answer, in their order: as if every call
    of a tool that has come before had."""
    tools = {name for name, _ in set().union(*live_rounds(history))}
    before = [Counter(call.signature for call in pending[:at]) for at in range(len(pending))]
    return tuple(
        call
        for equal, call in zip(before, pending, strict=True)
        if any(one[0] == call.name and count + 1 >= _most(one[0], tools, repeats) for one, count in equal.items())
    )


def _most(call: T, known: Collection[T], repeats: int) -> int:
    """The number in its answer from which on an equal call is one too many."""
    return repeats if call in known else 2 * repeats


def _goes_on(rounds: Sequence[Outcomes], call: Signature, repeats: int) -> bool:
    """Whether one more round with this call would be a loop."""
    equal = streak(rounds, call, equal_outcomes=True)
    whole = streak(rounds, call, equal_outcomes=False)
    return 1 + equal >= repeats and (equal == whole or equal > 1)
