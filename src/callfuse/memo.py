"""Memoize functions of texts that clients and vendors write, within a bound in bytes.

`functools.lru_cache` bounds how many results it keeps, not how long their keys are: a thousand names of 400 kB each
are 400 MB. A `remembered` function keeps a result only if its texts have at most a given length in total. The number of
entries times this length bounds the memory. For longer texts the result is computed on every call.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

BYTES_A_CHARACTER: Final = 4
"""The most that a character of a text takes in memory; most take one."""
_TEXTS: Final = (str, bytes)


class Bound(NamedTuple):
    """The most that a remembered function keeps: the number of entries, and the characters of each entry's texts."""

    entries: int
    longest: int

    @property
    def bytes(self) -> int:
        """The most memory that the texts of its keys take."""
        return self.entries * self.longest * BYTES_A_CHARACTER


BOUNDS: Final[dict[str, Bound]] = {}
"""The bound of each remembered function, by its module and name."""


def remembered(*, entries: int, longest: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function remember its last `entries` results for positional arguments of at most `longest` characters.

    Only `str` and `bytes` arguments count. Other arguments must be bounded by themselves, such as flags or the
    operator's settings. A result must not be much longer than its texts, because it is kept, too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        anew: Any = function
        keep: Any = lru_cache(maxsize=entries)(function)
        BOUNDS[f"{function.__module__}.{function.__qualname__}"] = Bound(entries, longest)

        def of_one(text: Any) -> Any:  # most functions have one argument; this takes half the time
            return keep(text) if len(text) <= longest else anew(text)

        def of_several(*key: Any, **named: Any) -> Any:
            length = 0
            for part in key:
                if isinstance(part, _TEXTS):
                    length += len(part)
            return keep(*key, **named) if length <= longest else anew(*key, **named)

        call = of_several if function.__code__.co_argcount > 1 else of_one
        return cast("Callable[P, R]", wraps(function)(call))

    return decorate
