"""The tests' own reading of when a call is a loop: `repeat` and `repeat_changing` for simple histories.

In: a history and the calls of one pending answer. Out: the pending calls that are loops. Simple means: at most ten
rounds since the last user message, every call answered, equal calls of one round answered equally, no pollers.

    repeat            n rounds in a row bring the call, the n-th being the pending one, all with the same outcome
    repeat_changing   the same, whatever the outcomes
    progress          a round that brings a call not seen before ends the streaks of the others and counts for none;
                      for that new call it is the first round of its own streak
"""

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
    if any(call.signature not in known for call in pending):
        return ()
    return tuple(
        call
        for call in pending
        if 1 + streak(rounds, call.signature, equal_outcomes=True) >= repeats
        or 1 + streak(rounds, call.signature, equal_outcomes=False) >= changing
    )


def may_loop(history: History, name: str, *, repeats: int = 3, changing: int = 6) -> bool:
    """Whether any arguments could make a call of this tool a loop."""
    rounds = live_rounds(history)
    return any(
        signature[0] == name
        and (
            1 + streak(rounds, signature, equal_outcomes=True) >= repeats
            or 1 + streak(rounds, signature, equal_outcomes=False) >= changing
        )
        for signature in set().union(*rounds)
    )
