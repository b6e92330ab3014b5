"""`repeat_with_notes`: the same calls with the same results, and nothing but notes between or beside them.

A task list, a plan or a written-down thought (`note_tools`) has new text each time, and yet is not progress. Rounds are
compared without such calls, but there must be at least one; rounds of notes alone are skipped. Calls that wait or act
on a screen end the streak, and so does any other call. `known_pairs` warns much earlier.
"""

from collections.abc import Iterable, Sequence

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence
from callfuse.detect.facts import NOTES_BETWEEN
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.pollers import polls
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.streak import recent
from callfuse.model import PastCall, Round, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature


class RepeatWithNotes(Detector):
    """Finds the same call once more, with nothing but notes since."""

    kind = Kind(
        "repeat_with_notes",
        seen="round {count} in a row with the same calls and results, and nothing but notes in between",
        suggestion="Writing a task down does not do it: continue from what {tool} has returned.",
        limit=SoftLimit(
            "rounds",
            10,
            "Equal rounds in a row with equal results, with only calls of note-taking tools between or beside them. "
            "Hard at once: `known_pairs` warns earlier.",
        ),
        most="warn",
        most_hard="none",
    )
    needs = facts.NOTED

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the kind's limit, as both soft and hard limit."""
        limit = tool.settings.limit_of(self.kind.name)
        return limit, limit

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls of the newest equal round."""
        return [one.call for round_ in timeline.memoized(_equal_rounds, settings)[:1] for one in round_.distinct]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the equal rounds before this call that contain an equal call."""
        streak = timeline.memoized(_equal_rounds, settings)
        found = [one for round_ in streak if (one := round_.find(call.signature))]
        return Evidence(1 + len(found), tuple(found)) if found else None


def _equal_rounds(timeline: Timeline, settings: Settings) -> Sequence[Round]:
    """Return the equal rounds that a pending call could continue, newest first; none if there is no note."""
    rounds = recent(timeline, settings)
    names = {one.call.full_name for round_ in rounds for one in round_.calls}
    takes_notes = True in [settings.for_tool(name).takes_notes for name in names]  # False for most loops
    return _without_notes(rounds, settings) if takes_notes else ()


def _without_notes(rounds: Sequence[Round], settings: Settings) -> Sequence[Round]:
    streak: list[Round] = []
    brought: dict[Signature, Outcome] = {}
    is_noted, notes = False, 0  # `notes`: rounds of only notes since the last equal round
    for round_ in rounds:
        others = [one for one in round_.distinct if not settings.for_tool(one.full_name).takes_notes]
        if not others and notes < NOTES_BETWEEN:
            notes += 1
            continue
        is_equal = not streak or streak[0].signatures.issuperset([one.signature for one in others])
        if not (others and is_equal) or False in [_brings_the_same(one, brought, settings) for one in others]:
            break
        is_noted |= bool(notes) or len(others) < len(round_.distinct)
        streak.append(Round(tuple(others), round_.position, round_.time))
        notes = 0
    return streak if is_noted else ()


def _brings_the_same(call: PastCall, brought: dict[Signature, Outcome], settings: Settings) -> bool:
    """Whether a call returned the same outcome as the later equal calls, whose outcomes are in `brought`. False if it
    waits or acts on a screen."""
    tool, outcome = settings.for_tool(call.full_name), None if call.withheld else call.outcome
    if tool.on_screen or polls(call.call, settings) or (outcome and (outcome.pending or outcome.transient)):
        return False
    return outcome is None or same_outcome(brought.setdefault(call.signature, outcome), outcome)
