"""How long to search: more or fewer examples than the profile has, and which places of many to try.

`more_examples` is for a property that runs once, not once a dialect, or that needs a longer search, and
`fewer_examples` for one with long answers. `some` is for a test that walks all places of an answer: `make fuzz` tries
each of them.
"""

import os

from hypothesis import settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
"""Whether this is a long search, as `make fuzz` asks for."""


def more_examples(factor: int) -> settings:
    """A decorator that multiplies the number of examples of the profile; it goes with every profile."""
    return settings(max_examples=factor * settings().max_examples)


def fewer_examples(divisor: int) -> settings:
    """A decorator that divides the number of examples of the profile, for a property of which each takes long."""
    return settings(max_examples=max(1, settings().max_examples // divisor))


def some(places: range, step: int, first: int = 0) -> range:
    """Each `step`-th of some places, beginning with another one for each `first`; all of them in a long search.

    A test with `step` different values of `first` tries every place. Mark it `search`, so that `make fuzz` runs it.
    """
    return places if THOROUGH else places[first % step :: step]
