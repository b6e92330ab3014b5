"""Names that someone has mistyped: a name and those that there are go in, the one that was meant comes out."""

from collections.abc import Collection
from typing import Final

from rapidfuzz import fuzz, process

ALIKE: Final = 80
"""From how alike (of 100) as a whole a name is taken for another."""
NEAR: Final = 75
"""From how alike (of 100) in a part of it a name is taken for another."""
SLIP: Final = 90
"""From how alike (of 100) a name is nothing but another with a slip of the fingers."""


def nearest(name: str, names: Collection[str], *, slip: bool = False) -> str | None:
    """The one of `names` that someone who wrote `name` most likely meant (`slip`: meant and mistyped); None where none
    is near. The most alike as a whole, else the one that has most of it in it."""
    choices = list(names)  # of a mapping rapidfuzz would take the values
    least = SLIP if slip else ALIKE
    found = process.extractOne(name, choices, processor=str.lower, scorer=fuzz.ratio, score_cutoff=least)
    if found is None and not slip:
        found = process.extractOne(name, choices, processor=str.lower, scorer=fuzz.WRatio, score_cutoff=NEAR)
    return found[0] if found else None


def meant(name: str, names: Collection[str]) -> str:
    """What to say to someone who wrote `name`: the nearest of `names`, else all of them."""
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"use {', '.join(names)}"
