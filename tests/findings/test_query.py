"""What somebody asks of the findings is read, or refused with what would be right."""

import re
from datetime import UTC, datetime
from math import inf

import pytest

from callfuse.conversations.identity import session_name
from callfuse.findings import FindingsQuery, read_query

NOW = 1_800_000_000.0


def test_nothing_asked_is_the_last_day() -> None:
    """The newest first; empty fields of a form say nothing."""
    assert read_query([], NOW) == FindingsQuery(begin=NOW - 86_400)
    assert read_query([("kind", ""), ("from", " ")], NOW) == FindingsQuery(begin=NOW - 86_400)


@pytest.mark.parametrize(
    ("given", "times"),
    [
        ({"range": "hour"}, (NOW - 3600, inf)),
        ({"range": "week"}, (NOW - 604_800, inf)),
        ({"range": "all"}, (0, inf)),
        ({"from": "1799990000"}, (1_799_990_000, inf)),
        ({"to": "1799990000.5"}, (0, 1_799_990_000.5)),
        (
            {"from": "2026-03-01T12:00:00Z", "to": "2026-03-01T14:00:00+01:00"},
            (datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp(), datetime(2026, 3, 1, 13, tzinfo=UTC).timestamp()),
        ),
        ({"from": "2026-03-01"}, (datetime(2026, 3, 1, tzinfo=UTC).timestamp(), inf)),
    ],
)
def test_times(given: dict[str, str], times: tuple[float, float]) -> None:
    """A range up to now, or from and to; without a zone it is UTC."""
    found = read_query(given.items(), NOW)
    assert (found.begin, found.end) == times


def test_values_order_and_page() -> None:
    """Each may be given more than once; a session by its own id, too."""
    given = [("kind", "repeat"), ("kind", "cycle"), ("tool", "search"), ("session", "a b"), ("action", "block")]
    found = read_query([*given, ("sort", "count"), ("by", "loop"), ("page", "2"), ("size", "10")], NOW)
    chosen = dict(found.chosen)
    assert chosen["kind"] == ("repeat", "cycle")
    assert set(chosen["session"]) == {"a b", session_name("a b")}
    assert (found.sort, found.falling, found.by_loop, found.page, found.size) == ("count", False, True, 2, 10)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("tol", "x", "there is no parameter 'tol'; did you mean tool?"),
        ("range", "dya", "range = 'dya'; use hour, day, week, month, all"),
        ("kind", "repeats", "kind = 'repeats'; did you mean repeat?"),
        ("action", "blok", "action = 'blok'; did you mean block?"),
        ("from", "yesterday", "from = 'yesterday': use a time as in"),
        ("to", "nan", "to = 'nan': use a time as in"),
        ("from", "1e30", "from = '1e30': use a time as in"),
        ("sort", "id; DROP TABLE findings", "sort = 'id; DROP TABLE findings'; "),
        ("page", "-1", "page = '-1'; use a number from 0 to 1,000,000"),
        ("size", "100000", "size = '100000'; use a number from 1 to 500"),
        ("by", "session", "by = 'session'; "),
        ("format", "xml", "format = 'xml'; "),
    ],
)
def test_what_is_wrong_is_told(name: str, value: str, why: str) -> None:
    """With key, value and what would be right."""
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        read_query([(name, value)], NOW)


def test_what_does_not_fit_together_is_told() -> None:
    """A range with from, an end before its beginning, a name twice, too many values."""
    for given, why in [
        ([("range", "day"), ("from", "0")], "range always ends now"),
        ([("from", "20"), ("to", "10")], "from is not before to"),
        ([("page", "1"), ("page", "2")], "page is given twice"),
        ([("tool", str(n)) for n in range(51)], "tool is given more than 50 times"),
    ]:
        with pytest.raises(ValueError, match=why):
            read_query(given, NOW)
