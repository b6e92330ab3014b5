"""Modes that set more than a ladder: a `Preset` is a ladder with further settings.

The other values of the tier that sets the preset override the preset's values; these override lower tiers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from callfuse.policy.rungs import Ladder, Rung


class Preset(tuple[Rung, ...]):  # noqa: SLOT001 - a tuple can have attributes of its own in no slot
    """A ladder with a name and further settings, as a file would write them; equal to the plain ladder."""

    name: str
    sets: Mapping[str, Any]

    def __new__(cls, name: str, rungs: Iterable[Rung], sets: Mapping[str, Any]) -> "Preset":
        """Create a preset with this name."""
        preset = super().__new__(cls, rungs)
        preset.name = name
        preset.sets = sets
        return preset

    def __repr__(self) -> str:
        return f"Preset({self.name!r})"


UNATTENDED: Final = Preset(
    "unattended",
    (Rung.STEER, Rung.BLOCK),
    {
        "detectors": {"same_error_most": "none", "repeat_changing_most_hard": "none"},
        "blow_after": 3,
    },
)
"""For agents that nobody watches: guidance first, then harder than the default. `same_error` has no cap,
`repeat_changing` has none from its hard limit on, and the fuse blows earlier."""

MODES: Final[dict[str, Ladder]] = {
    "observe": (Rung.OBSERVE,),
    "warn": (Rung.WARN,),
    "block": (Rung.BLOCK,),
    "break": (Rung.BLOCK,),
    "terminate": (Rung.BLOCK,),
    "chance_then_block": (Rung.STEER, Rung.BLOCK),
    "chance_then_break": (Rung.STEER, Rung.BLOCK),
    "chance": (Rung.STEER, Rung.BLOCK),
    "graduated": (Rung.WARN, Rung.WARN, Rung.BLOCK),
    UNATTENDED.name: UNATTENDED,
}
"""The ladders by their names."""


class ToolLoopMode:
    """The ladders that have names, for `ToolCallLoopConfig(mode=ToolLoopMode.CHANCE_THEN_BLOCK)`. Any other ladder is a
    tuple of rungs."""

    OBSERVE: Final = MODES["observe"]
    WARN: Final = MODES["warn"]
    BLOCK: Final = MODES["block"]
    CHANCE_THEN_BLOCK: Final = MODES["chance_then_block"]
    GRADUATED: Final = MODES["graduated"]
    UNATTENDED: Final = MODES["unattended"]


def mode_name(ladder: object) -> str | None:
    """Return the name of a ladder; None if the ladder has no name."""
    if isinstance(ladder, Preset):
        return ladder.name
    return next((name for name, known in MODES.items() if known == ladder), None)
