"""`runaway`: a call whose arguments repeat themselves without an end; `runaway.py` explains how that is recognised.

Such a call is found by its arguments alone, whatever came before or beside it. A timeline cannot foresee it.
"""

from typing import ClassVar, Final

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence
from callfuse.detect.facts import Fact
from callfuse.detect.kind import ARGUMENTS, FINISH, REASONING, TEXT, AnswerPart, Kind
from callfuse.detect.runaway import LEAST, LEAST_LAPS, GrowingText
from callfuse.detect.settings import ForTool, Settings
from callfuse.memo import remembered
from callfuse.model import Timeline, ToolCall

_REMEMBERED_LENGTH: Final = 64 * 1024
"""The most characters of memoized arguments: each request of a session contains them again."""


class RunawayCall(Detector):
    """Finds a call into which the model writes the same text again and again."""

    kind = Kind(
        "runaway",
        seen="a call of {tool} whose arguments repeat themselves ({count} times)",
        suggestion="Try again without the repetition, or do something else.",
        about="Arguments, text or reasoning that repeat one text, for 4,096 characters or more. `false` is off.",
        specific=True,
    )
    parts: ClassVar[tuple[AnswerPart, ...]] = (
        AnswerPart(ARGUMENTS, "block", "The strictest rung for arguments that repeat one text; `off` turns it off."),
        AnswerPart(
            TEXT,
            "warn",
            "The same for the text of an answer.",
            "a text that repeats itself ({count} times)",
        ),
        AnswerPart(
            REASONING,
            "warn",
            "The same for the reasoning of an answer.",
            "reasoning that repeats itself ({count} times)",
        ),
        AnswerPart(
            FINISH,
            "warn",
            "The same for an answer that the vendor has ended because of it: `off`, `observe` or `warn`.",
            "an answer that the vendor has ended because it repeats itself",
        ),
    )
    needs: ClassVar[Fact] = facts.ALONE
    of_cut_off: ClassVar[bool] = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the fewest laps that a repetition can have, as both limits."""
        return LEAST_LAPS, LEAST_LAPS

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count how often the call's arguments repeat one text."""
        laps = _laps_in(call.text) if is_long(call) else 0
        return Evidence(laps) if laps else None


def is_long(call: ToolCall) -> bool:
    """Cheap pre-check: whether a call has arguments that could run away. False is certain."""
    arguments = call.arguments
    return len(arguments if isinstance(arguments, str) else call.text) >= LEAST


def runs_away(call: ToolCall) -> bool:
    """Whether a call's arguments run away, whatever the settings say."""
    return is_long(call) and _laps_in(call.text) > 0


@remembered(entries=16, longest=_REMEMBERED_LENGTH)
def _laps_in(text: str) -> int:
    """Count the laps of a text that runs away; 0 if it does not."""
    found = GrowingText().add(text)
    return found.laps if found else 0
