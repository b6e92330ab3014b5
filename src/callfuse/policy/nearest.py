"""Guess which known name, or which allowed value, an unknown one was meant to be."""

from collections.abc import Collection
from typing import Final

from rapidfuzz import fuzz, process

SIMILAR: Final = 80
"""The least similarity (of 100) of two whole names for a suggestion."""
PARTLY_SIMILAR: Final = 75
"""The least similarity (of 100) of parts of two names for a suggestion."""
SIMILAR_VALUE: Final = 70
"""The least similarity (of 100) of a value and an allowed one: `ture` and `true` have 75."""
TYPO: Final = 90
"""The least similarity (of 100) at which a name is certainly a known name with a typing error."""


def nearest(name: str, names: Collection[str], *, typo_only: bool = False) -> str | None:
    """Return the most similar of `names`, in any case: as a whole, else by its best part; None if none is similar.

    `typo_only`: return a name only if `name` is certainly that name with a typing error.
    """
    choices = list(names)  # rapidfuzz searches the values of a mapping
    least = TYPO if typo_only else SIMILAR
    found = process.extractOne(name, choices, processor=str.lower, scorer=fuzz.ratio, score_cutoff=least)
    if found is None and not typo_only:
        found = process.extractOne(name, choices, processor=str.lower, scorer=fuzz.WRatio, score_cutoff=PARTLY_SIMILAR)
    return found[0] if found else None


def suggest(name: str, names: Collection[str]) -> str:
    """Return a hint for the message about an unknown name: the most similar of `names`, else all of them."""
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"use {', '.join(names)}"


def value_hint(value: object, allowed: Collection[str]) -> str:
    """Return the end of a message about a wrong value, `; did you mean block?`; empty if no allowed value is close."""
    if not isinstance(value, str):
        return ""
    scorer, least = fuzz.ratio, SIMILAR_VALUE
    near = process.extractOne(value.strip(), list(allowed), processor=str.lower, scorer=scorer, score_cutoff=least)
    return f"; did you mean {near[0]}?" if near else ""
