"""The one way to remember a function's results for texts that others write, within a bound in bytes.

`functools.lru_cache` bounds how many results it keeps, not how long their keys are: a thousand names of 400 kB each
are 400 MB. A `remembered` function keeps a result only where its texts are short together, so that its entries times
that length bound what it keeps. A longer call is worked out anew each time.
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
    """What a remembered function keeps at most: so many entries, whose texts have so many characters together."""

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

    Texts and bytes count. Other arguments must be bounded by themselves: flags, settings of the operator. A result must
    not be much longer than the texts that it is made of, because it is kept, too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        anew: Any = function
        keep: Any = lru_cache(maxsize=entries)(function)
        BOUNDS[f"{function.__module__}.{function.__qualname__}"] = Bound(entries, longest)

        def of_one(text: Any) -> Any:  # most have one argument, and this takes half the time
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
