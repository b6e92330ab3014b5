"""Normalised texts of results: what they are, and that the fast search finds what the exact expression does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model.outcomes.fields import _FEW_NAMES, blank_fields, shape_of
from callfuse.model.outcomes.normalise import _MAY_MOVE, _MOVING, _split_moving, normalise
from tests.support.examples import more_examples

KEPT = {
    "a counter": ("step 12 of 40, 3 left", "step 12 of 40, 3 left"),
    "a size": ("total 48\n-rw-r--r-- 1 root root 2048 a.txt", "total 48\n-rw-r--r-- 1 root root 2048 a.txt"),
    "a version": ("pytest-8.2.1, python 3.11", "pytest-8.2.1, python 3.11"),
    "an order": ('{"order_id": "W2417020", "price": 46.85}', '{"order_id": "W2417020", "price": 46.85}'),
    "a date": ("on 2026-11-23T10:00:05Z it ran", "on0 it ran"),
    "a date in words": ("Mon Nov 23 10:00:05 UTC 2026: done", "Mon Nov0: done"),
    "a date with slashes": ("23/11/2026, 4/5", "0, 4/5"),
    "a day of a month": ("23 Nov 2026 and 3-Dec-2025", "0 and0"),
    "a clock": ("at 10:00:05 and 9:07 pm, 4:3", "at0 and0, 4:3"),
    "a progress bar": ("1/5 [00:23<01:34, 23.6s/it]", "1/5 [0<0,0/it]"),
    "a duration": ("took 3.52s, then 2 min 4 s; 3 m wide", "took0, then0; 3 m wide"),
    "a rate": ("12.5 MB/s over 300 items", "0 over 300 items"),
    "an address": ("at 0x7f3a2c in 0xFFFFFFF, not 0xAB", "at0 in0, not 0xAB"),
    "a hash": ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit0"),
    "a hash of few digits": ("abcdef1 and cafe12f, not face1", "0 and0, not face1"),
    "a UUID": ("id 123e4567-e89b-12d3-a456-426614174000.", "id0."),
    "a process": ("started (PID 4711), port 8080", "started (PID0), port 8080"),
    "fields": ('{"pid": 4711, "count": 2, "elapsed_ms": 18}', '{"pid":0, "count": 2, "elapsed_ms":0}'),
    "a field in a line": ("requestId=ab12 rows=7 took: 5", "requestId:0 rows=7 took:0"),
    "a time of a field": ("created_at: 1764000000, created: 3", "created_at:0, created: 3"),
    "colours": ("\x1b[31m12 failed\x1b[0m", "12 failed"),
}  # fmt: skip
FRAGMENTS = [
    *("0", "1", "7", "12", "2026", "1999", "0042", "4711", "a", "f", "x", "z", "abc", "T", "Z", "PM", "am", "µs", "é"),
    *("-", "/", ".", ":", ",", " ", "  ", "\n", "<", "=", '"', "\\n", "\\u001b[0m", "(", "pid ", "0x", "Nov", "March "),
    *("s", "ms", "min", "h", "days", " kB/s", "it/s", "s/it", "2026-11-23", "10:00:05", "123e4567-e89b-12d3-a456-"),
    *("426614174000", "deadbeef", "elapsed", "created_at", "request_id", "count"),
]


@pytest.mark.parametrize("name", KEPT)
def test_what_moves_by_itself_becomes_a_zero(name: str) -> None:
    """Times, durations, dates, ids and fields named like them are replaced; plain numbers stay."""
    text, expected = KEPT[name]
    assert normalise(text, keep_numbers=True).decode() == expected


@more_examples(10)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join))
def test_the_fast_search_misses_nothing(text: str) -> None:
    """The search in the shape of a text finds each place where the exact expression matches."""
    raw = text.encode()
    assert {one.start() for one in _MOVING.finditer(raw)} <= {one.start() for one in _MAY_MOVE.finditer(shape_of(raw))}
    assert _split_moving(raw, shape_of(raw)) == _MOVING.split(raw)


NAMES = ["elapsed", "created_at", "time", "Request ID", "status", "in the last", "ms", ""]
fields = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(
        ["", " ", '"', "\n", "x", "x" * 40, "x" * 44, ", ", "{", "=", "a b c d e f g h i j k l m n o p q r s "]
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["", '"', " " * 44]),
    st.sampled_from([":", "=", ": ", '="', ""]),
    st.sampled_from(["17", "1764000000", "b"]),
)


@more_examples(20)
@given(drawn=st.lists(fields, min_size=1, max_size=2))
def test_fields_that_cannot_change_are_told_by_their_names(drawn: list[str]) -> None:
    """Whether the names are looked at once for all fields, or field by field, as one that changes makes it be."""
    raw = "".join(drawn).encode()
    seen = raw + b"\ntime:1"
    assert blank_fields(seen, shape_of(seen)) == blank_fields(raw, shape_of(raw)) + b"\ntime:0"


def test_fields_of_many_names() -> None:
    """They are looked at one by one."""
    raw = b"".join(b"\nname%s: 1" % (b"x" * at) for at in range(2 * _FEW_NAMES)) + b"\npid: 7"
    assert blank_fields(raw, shape_of(raw)) == raw.replace(b": 7", b":0")
