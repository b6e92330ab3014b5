"""Parse a query for findings: the parameters of the endpoint `findings`.

| name | value |
|---|---|
| `range` | `hour`, `day`, `week`, `month` or `all`, up to now; `day` if neither `from` nor `to` is given |
| `from`, `to` | a time: ISO 8601 (UTC if it names no zone) or Unix seconds |
| `kind`, `tool`, `model`, `session`, `action` | only rows with these values; each may be given more than once |
| `by` | `finding`, a row for each, or `loop`, a row for each loop |
| `sort` | a column, with a leading `-` in descending order; `-time` by default |
| `page`, `size` | at most `size` rows from row `page * size` on |
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from callfuse.conversations.identity import session_name
from callfuse.observe.labels import ACTIONS, KINDS
from callfuse.observe.printable import plain
from callfuse.policy.nearest import suggest

RANGES: Final = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0, "month": 2_592_000.0, "all": math.inf}
"""Seconds up to now."""
CHOICES: Final = ("kind", "tool", "model", "session", "action")
"""The columns by which rows can be filtered."""
SORTS: Final = ("time", *CHOICES, "count", "saved_calls")
NAMES: Final = ("range", "from", "to", *CHOICES, "by", "sort", "page", "size", "format")
FORMATS: Final = ("json", "csv")
MOST_VALUES: Final = 50
"""The most values of one column."""
SIZE: Final = 50
LARGEST: Final = 500
"""Rows of a page: the default, and the maximum."""
LATEST: Final = 1e11
"""Later times, in seconds since the epoch, cannot be converted to dates."""
TIME_HINT: Final = "use a time as in 2026-03-01T12:00:00Z, or Unix seconds"


@dataclass(frozen=True, slots=True)
class FindingsQuery:
    """A query for findings. `begin`, `end`: Unix seconds; findings at `end` are not included. `chosen`: values by
    column. `sort`: a column; `falling`: in descending order. `by_loop`: a row for each loop."""

    begin: float = 0.0
    end: float = math.inf
    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()
    by_loop: bool = False
    sort: str = "time"
    falling: bool = True
    page: int = 0
    size: int = SIZE
    format: str = "json"


def read_query(given: Iterable[tuple[str, str]], now: float) -> FindingsQuery:
    """Parse a query from parameters and their values. `now`: Unix seconds. Raises ValueError, which says what is
    allowed."""
    found: dict[str, list[str]] = {}
    for name, value in given:
        if name not in NAMES:
            raise ValueError(f"there is no parameter {plain(name, 100)!r}; {suggest(name[:100], NAMES)}")
        if not value.strip():
            continue  # an empty field of a form
        found.setdefault(name, []).append(value.strip())
        if len(found[name]) > (MOST_VALUES if name in CHOICES else 1):
            most = f"more than {MOST_VALUES} times" if name in CHOICES else "twice; keep one"
            raise ValueError(f"{name} is given {most}")
    one = {name: values[0] for name, values in found.items()}
    begin, end = _times(one, now)
    sort = one.get("sort", "-time")
    return FindingsQuery(
        begin,
        end,
        tuple((name, _values(name, found[name])) for name in CHOICES if name in found),
        by_loop=_one_of("by", one, ("finding", "loop")) == "loop",
        sort=_one_of("sort", {"sort": sort.removeprefix("-")}, SORTS),
        falling=sort.startswith("-"),
        page=_number("page", one.get("page", "0"), 0, 1_000_000),
        size=_number("size", one.get("size", str(SIZE)), 1, LARGEST),
        format=_one_of("format", one, FORMATS),
    )


def _times(one: dict[str, str], now: float) -> tuple[float, float]:
    """Return the begin and the end of the queried time."""
    if "range" in one and ("from" in one or "to" in one):
        raise ValueError("range always ends now; use either range, or from and to")
    if "from" in one or "to" in one:
        begin, end = (_time(name, one[name]) if name in one else None for name in ("from", "to"))
        if begin is not None and end is not None and begin >= end:
            raise ValueError("from is not before to")
        return begin or 0.0, math.inf if end is None else end
    chosen = _one_of("range", {"range": one.get("range", "day")}, tuple(RANGES))
    return max(0.0, now - RANGES[chosen]), math.inf


def _time(name: str, value: str) -> float:
    try:
        time = float(value)
    except ValueError:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{name} = {plain(value, 100)!r}: {TIME_HINT}") from None
        time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= time < LATEST:
        raise ValueError(f"{name} = {plain(value, 100)!r}: {TIME_HINT}")
    return time


def _values(name: str, values: list[str]) -> tuple[str, ...]:
    """Return the values to filter a column by. Raises ValueError for a value that no row can have."""
    if allowed := {"kind": KINDS, "action": ACTIONS}.get(name):
        for value in values:
            _one_of(name, {name: value}, sorted(allowed))
    if name == "session":
        values = [one for value in values for one in (plain(value), session_name(value))]
    return tuple(dict.fromkeys(values))


def _one_of(name: str, one: dict[str, str], allowed: Iterable[str]) -> str:
    """Return the value of a parameter, by default the first allowed one. Raises ValueError for another value."""
    known = tuple(allowed)
    value = one.get(name, known[0])
    if value not in known:
        raise ValueError(f"{name} = {plain(value, 100)!r}; {suggest(value[:100], known)}")
    return value


def _number(name: str, value: str, least: int, most: int) -> int:
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1
    if not least <= number <= most:
        raise ValueError(f"{name} = {plain(value, 100)!r}; use a number from {least:,} to {most:,}")
    return number
