"""More examples than the profile's for a property that runs once, not once a dialect, or that needs a longer search."""

from hypothesis import settings


def more_examples(factor: int) -> settings:
    """A decorator that multiplies the number of examples of the profile; it goes with every profile."""
    return settings(max_examples=factor * settings().max_examples)
