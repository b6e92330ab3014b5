"""The rungs of the ladder. Everything else about a rung is derived from this table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RETURNED: Final = "It last returned: {previous_result}\n{empty_result}"
"""A sentence of the texts below; it is left out if no result is known."""
EMPTY_RESULT: Final = "An empty result is an answer, too: ask for something else, or say that nothing was found.\n"
"""Follows `RETURNED` if that result was empty: models take an empty result as a failure, and try again."""
USE_IT: Final = "use what you have"
ACCEPT_IT: Final = "accept the empty result as an answer"
"""What a warning asks for: with a result, and with an empty one."""
BLOCK: Final = (
    "Stopped a tool call loop: this would have been {finding} (limit {max_repeats}, pauses of at most {window} s). "
    f"{RETURNED}The call was not run. {{suggestion}}"
)
WARNING: Final = (
    "This is {finding} (limit {max_repeats}). You may be in a loop: {use_it}, change the arguments, try "
    "another tool, or answer in plain text."
)
GUIDANCE: Final = (
    "This call was not run. It would have been {finding} (pauses of at most {window} s). "
    f"{RETURNED}Pause and reflect: why would it return anything else now? {{suggestion}} Then either make one "
    "corrected call, or answer in plain text with what you know and what is missing."
)
TEXT_ONLY: Final = (
    "This call was not run. It would have been {finding} (pauses of at most {window} s). "
    f"{RETURNED}No tool can be called now. Pause and reflect, then answer in plain text with what you know, "
    "what is missing, and why it could not be found."
)


@dataclass(frozen=True, slots=True)
class Act:
    """What a rung does; by default it only reports the finding.

    `warns`: the call is delivered, and its result carries `text` in the next request. `asks`: the call is withheld and
    the model asked again, with `text` as the call's result; `text_only`: the model must not call a tool then;
    `other_model`: the model of `escalate_model` is asked. `blocks`: the call is withheld for good, and the client gets
    `text`.
    """

    text: str = ""
    warns: bool = False
    asks: bool = False
    text_only: bool = False
    other_model: bool = False
    blocks: bool = False


_TELL: Final = Act()


class Rung(StrEnum):
    """One step of the ladder: an action on a finding, the mildest first.

    A rung that asks needs a request that may be changed and a model that may be asked again; one with `other_model`
    also needs a model to escalate to. If an exchange lacks one of these, the next rung applies. A warning needs a
    request that may be changed; otherwise the finding is only observed.
    """

    OBSERVE = "observe", _TELL
    WARN = "warn", Act(WARNING, warns=True)
    STEER = "steer", Act(GUIDANCE, asks=True)
    FORCE_TEXT = "force_text", Act(TEXT_ONLY, asks=True, text_only=True)
    ESCALATE = "escalate", Act(GUIDANCE, asks=True, other_model=True)
    BLOCK = "block", Act(BLOCK, blocks=True)

    hardness: int
    """Its place in this table."""
    text: str
    """The built-in text."""
    warns: bool
    """Whether the call's result carries a warning."""
    asks: bool
    """Whether the call is withheld and a model is asked again."""
    text_only: bool
    """Whether that model may only answer in text."""
    other_model: bool
    """Whether that model is another one."""
    blocks: bool
    """Whether the call is withheld for good."""
    withholds: bool
    """Whether the call is kept from the client."""
    teaches: bool
    """Whether the model reads about the finding, so that it may do something else."""

    def __new__(cls, name: str, act: Act = _TELL) -> "Rung":
        """Create a member by its name, with the fields of its `Act` as attributes."""
        rung = str.__new__(cls, name)
        rung._value_ = name
        rung.hardness = len(cls.__members__)
        rung.text = act.text
        rung.warns, rung.asks, rung.blocks = act.warns, act.asks, act.blocks
        rung.text_only, rung.other_model = act.text_only, act.other_model
        rung.withholds = act.asks or act.blocks
        rung.teaches = act.warns or act.asks
        return rung


RUNG_NAMES: Final = {rung.value: rung for rung in Rung} | {
    "break": Rung.BLOCK,
    "continue": Rung.OBSERVE,
    "terminate": Rung.BLOCK,
}
"""The rungs by their names, and by the names that other loop detectors use for them."""

Ladder = tuple[Rung, ...]

HARDEST: Final = max(Rung, key=lambda rung: rung.hardness)
"""As a cap, this rung lowers nothing."""
NO_CAP: Final = "none"
"""The name of this cap in settings."""


def milder(one: Rung, other: Rung) -> Rung:
    """Return the milder of two rungs."""
    return one if one.hardness <= other.hardness else other
