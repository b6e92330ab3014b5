"""Periods of a budget: hours, days and months of UTC, or any number of seconds, with fixed beginnings and ends.

Periods do not depend on when a client began, so that all processes agree without asking each other.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from callfuse.policy.fields import Seconds, lower_or_none
from callfuse.policy.nearest import value_hint

NO_PERIOD: Final = "none"
NAMES: Final = (NO_PERIOD, "hour", "day", "month")
LENGTHS: Final = {"hour": 3600, "day": 86400}
MONTH_DAYS: Final = 30.436875
"""The average days of a month, over four hundred years."""
LONGEST: Final = 366 * 86400
"""The most seconds of a period. The amount spent in a period is kept to its end."""
_SECONDS: Final[TypeAdapter[float]] = TypeAdapter(Annotated[Seconds, Field(ge=1, le=LONGEST)])


def _period(value: Any) -> Any:
    """Read a period: a word in any case, or a number of seconds, also as text."""
    word = lower_or_none(value)
    if isinstance(word, str) and word.strip() in NAMES:
        return word.strip()
    try:
        return _SECONDS.validate_python(value)
    except ValidationError:
        hint = value_hint(value, NAMES)
    raise ValueError(f"use none, hour, day, month, or 1 to {LONGEST} seconds{hint}")


Period = Annotated[Literal["none", "hour", "day", "month"] | float, BeforeValidator(_period)]


def end_of(period: str | float, now: float) -> float:
    """Return when the period that contains a time ends, both in Unix seconds; 0 if there is no period."""
    if period == NO_PERIOD:
        return 0.0
    if period == "month":
        return 86400.0 * _end_of_month(int(now // 86400))
    length = LENGTHS[period] if isinstance(period, str) else period
    return (now // length + 1) * length


def _end_of_month(day: int) -> int:
    """Return the first day of the next month. Days are counted from 1970."""
    month = int(day / MONTH_DAYS) - 1
    while _first_of(month) <= day:
        month += 1
    return _first_of(month)


def _first_of(month: int) -> int:
    """Return the first day of a month, both counted from January 1970. Years begin in March here, so that the month
    whose length varies is the last."""
    years, of_year = divmod(month + 12 * 1970 - 2, 12)
    leap_days = years // 4 - years // 100 + years // 400
    return 365 * years + leap_days + (153 * of_year + 2) // 5 - 719_468
