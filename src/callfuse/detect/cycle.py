"""`cycle`: the newest rounds repeat one sequence of 2 to 5 rounds; each repetition is a lap.

Rounds are compared by their sets of signatures, and at least two rounds of a lap differ; the shortest sequence counts.
Known outcomes are equal lap by lap. A new call is progress: only the first lap may have new calls, at its beginning.
"""

from collections.abc import Iterable
from typing import Final

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence, distinct_calls
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import LONGEST_LAP, Settings
from callfuse.detect.streak import recent
from callfuse.model import Round, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature

LENGTHS: Final = range(2, LONGEST_LAP + 1)
"""The possible numbers of rounds in a lap."""
MOST_NAMES: Final = 4
"""The most tools that name one round of a lap."""


class Cycle(Detector):
    """Finds rounds that repeat as a sequence: A B A B, A B C A B C, and so on."""

    kind = Kind(
        "cycle",
        seen="lap {count} of one sequence of calls ({lap}), each lap with the same results",
        seen_uncompared="lap {count} of one sequence of calls ({lap})",
        suggestion="Leave the sequence: change one of its steps, or answer with what is known.",
        limit=SoftLimit("laps", 2, "Laps of one sequence of 2 to 5 rounds."),
        specific=True,
        spares_pollers=True,
    )
    needs = facts.RETURNS

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls of rounds that could come next, if the newest round came before and not all are equal."""
        rounds = timeline.rounds[: 1 + LONGEST_LAP]
        sets = [round_.signatures for round_ in rounds]
        if not sets or sets[0] not in sets[2:] or len(set(sets)) < 2:
            return ()
        return [one.call for one in distinct_calls(rounds[1:LONGEST_LAP])]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return the laps that the pending round would complete, if it is the expected round."""
        for expected, evidence in timeline.memoized(_laps, settings):
            if call.signature in expected.signatures:
                return evidence
        return None


def _laps(timeline: Timeline, settings: Settings) -> list[tuple[Round, Evidence]]:
    """Return, for each lap length, shortest first, the expected round and the evidence that it would complete."""
    laps: list[tuple[Round, Evidence]] = []
    past = recent(timeline, settings)
    newest = [round_.signatures for round_ in past[: 1 + LONGEST_LAP]]
    if len(set(newest)) < 2:
        return laps
    for length in LENGTHS:
        # A cheap check first. The pending round would end a lap; from the lap before, only one round is needed.
        before = newest[length : 2 * length - 1]
        if not before or before != newest[: len(before)] or len(set(newest[:length])) < 2:
            continue
        rounds = _rounds(timeline, settings, length)
        expected = rounds[length - 1]
        if len(rounds) == 2 * length - 1 < len(past) and past[len(rounds)].signatures == expected.signatures:
            continue  # the expected round had another outcome each time, and may have one again
        del rounds[_from_news(timeline, settings, len(rounds), length) :]
        if len(rounds) < 2 * length - 1:
            continue
        lap = (*rounds[: length - 1][::-1], expected)
        evidence = Evidence(
            (1 + len(rounds)) // length,
            distinct_calls(rounds),
            whole_round=expected.signatures,
            lap=tuple(map(_name_of_round, lap)),
        )
        laps.append((expected, evidence))
    return laps


def _rounds(timeline: Timeline, settings: Settings, length: int) -> list[Round]:
    """Return the newest rounds that form laps of this length."""
    past = recent(timeline, settings)
    rounds = [*past[:length]]
    outcomes: dict[tuple[int, Signature], Outcome] = {}
    for index, round_ in enumerate(rounds):
        _agrees(outcomes, index, round_)
    is_wide = length > settings.window
    for index, earlier in enumerate(past[length:], length):
        if is_wide and timeline.news(index - length, settings.window):
            break
        later = rounds[index - length]
        if (later._brought or later.brought) != (earlier._brought or earlier.brought) and (
            later.signatures != earlier.signatures or not _agrees(outcomes, index % length, earlier)
        ):
            break
        rounds.append(earlier)
    return rounds


def _agrees(outcomes: dict[tuple[int, Signature], Outcome], place: int, round_: Round) -> bool:
    """Add a round's outcomes to those at this place of the other laps; False if a known outcome differs from them."""
    for call in round_.distinct:
        if call.withheld:
            continue
        signature, outcome = call.signature, call.outcome
        before = outcomes.get((place, signature))
        if not same_outcome(before, outcome):
            return False
        if before is None and outcome is not None:
            outcomes[place, signature] = outcome
    return True


def _from_news(timeline: Timeline, settings: Settings, rounds: int, length: int) -> int:
    """Count the rounds since the last run of rounds with new calls began, those rounds included.

    Only in the first lap, which is the oldest, may a call be new.
    """
    is_new = False
    for index in range(max(0, rounds - length), rounds):
        was_new, is_new = is_new, bool(timeline.news(index, settings.window))
        if was_new and not is_new:
            return index
    return rounds


def _name_of_round(round_: Round) -> str:
    """Return the name of a round in the description of a lap."""
    if len(round_.calls) == 1:
        return round_.calls[0].name
    names = sorted({call.name for call in round_.calls})
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join(names[:MOST_NAMES] + more)
