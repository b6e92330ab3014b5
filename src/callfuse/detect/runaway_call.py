"""`runaway`: a call whose arguments repeat themselves without an end; `runaway.py` says how that is told.

It is found in the call itself, whatever came before it and beside it: nothing foresees it.
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
"""Characters of arguments: a history shows them again in each request."""


class RunawayCall(Detector):
    """A model that writes the same again and again into one call."""

    kind = Kind(
        "runaway",
        seen="a call of {tool} whose arguments repeat themselves ({count} times)",
        suggestion="Try again without the repetition, or do something else.",
        about="Arguments, text or reasoning that repeat one text, for 4,096 characters or more. `false` is off.",
        specific=True,
    )
    parts: ClassVar[tuple[AnswerPart, ...]] = (
        AnswerPart(ARGUMENTS, "block", "The strictest rung for arguments of calls that do; `off` is off."),
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
            "The same for an answer that the vendor has ended for it: `off`, `observe` or `warn`.",
            "an answer that the vendor has ended because it repeats itself",
        ),
    )
    needs: ClassVar[Fact] = facts.ALONE
    of_cut_off: ClassVar[bool] = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """As few laps as a repetition has that is long enough; hard at once."""
        return LEAST_LAPS, LEAST_LAPS

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """How often its arguments have repeated one text."""
        laps = _laps_in(call.text) if is_long(call) else 0
        return Evidence(laps) if laps else None


def is_long(call: ToolCall) -> bool:
    """Cheap pre-check: whether a call has arguments that could run away. False is certain."""
    arguments = call.arguments
    return len(arguments if isinstance(arguments, str) else call.text) >= LEAST


def runs_away(call: ToolCall) -> bool:
    """Whether its arguments do, whatever is set."""
    return is_long(call) and _laps_in(call.text) > 0


@remembered(entries=16, longest=_REMEMBERED_LENGTH)
def _laps_in(text: str) -> int:
    """The laps of a text that runs away; 0 if it does not."""
    found = GrowingText().add(text)
    return found.laps if found else 0
