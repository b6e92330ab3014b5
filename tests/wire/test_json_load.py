"""Reading and writing JSON: what the fast reader refuses is still read, and no digit is lost where that is asked."""

import math
import tracemalloc
from typing import Any

import pytest

from callfuse.wire.jsontext import Edit, ExactValues, NotJSON, apply, dumps, loads, loads_exact

WIDE = 123456789012345678901234567890


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
        ('"\\ud800"', "\ud800"),
        ("1e400", math.inf),
        ("-Infinity", -math.inf),
        ("9007199254740993", 9007199254740993),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_both_readers_agree(text: str, value: Any) -> None:
    """From text and from bytes, fast or exact."""
    assert loads(text) == loads(text.encode()) == loads_exact(text) == value


def test_not_a_number_is_read() -> None:
    """NaN comes from Python clients, whose writer allows it."""
    assert math.isnan(loads("NaN"))


def test_wide_integers_keep_their_digits_when_asked() -> None:
    """The fast reader rounds beyond 64 bits; the exact one never does."""
    assert loads(str(WIDE)) == float(WIDE)
    assert loads_exact(str(WIDE)) == WIDE


def test_a_value_at_a_place_is_read_exactly() -> None:
    """Only when it is asked for; what is missing there is None."""
    text = b'{"calls": [{"input": {"n": %d}}, {}]}' % WIDE
    assert ExactValues(text).read("calls", 0, "input") == {"n": WIDE}
    assert ExactValues(text).read("calls", 1, "input") is None


@pytest.mark.parametrize(
    "text", ["", "{", "{'a':1}", "[1,]", "nul", "\x00", b"\xff\xfe", b'"\xff"', "1" * 5000, "[" * 9000]
)
def test_what_is_no_json_is_told(text: bytes | str) -> None:
    """One error for everything that neither reader can read, endless nesting and numbers included."""
    with pytest.raises(NotJSON):
        loads(text)
    with pytest.raises(NotJSON):
        loads_exact(text)


@pytest.mark.parametrize(
    "text", [b'{"a":1}', b'\xef\xbb\xbf{"a":1}', '{"a":1}'.encode("utf-16"), '{"a":1}'.encode("utf-32-le")]
)
def test_what_is_read_can_be_edited(text: bytes) -> None:
    """A byte order mark, or another encoding, is either no JSON at all or no obstacle to an edit."""
    try:
        loads(text)
    except NotJSON:
        return
    assert loads(apply(text, [Edit(("a",), b"2")])) == {"a": 2}


@pytest.mark.parametrize("value", [{"a": "\ud800é"}, [WIDE, -WIDE], {"a": 1.5, "b": "é"}])
def test_what_is_written_is_read_again(value: Any) -> None:
    """Lone surrogates and wide integers included."""
    assert loads_exact(dumps(value)) == value


def test_the_digits_of_an_integer_are_limited() -> None:
    """Reading one takes time quadratic in them. In a string they are no obstacle."""
    assert loads_exact(b"[" + b"9" * 500 + b"]") == [int("9" * 500)]
    assert loads_exact(b'["' + b"9" * 5000 + b'"]') == ["9" * 5000]
    for text in (b"[" + b"9" * 501 + b"]", b"[-" + b"9" * 4000 + b"]"):
        with pytest.raises(NotJSON, match="digits"):
            loads_exact(text)


@pytest.mark.parametrize("length", [1, 900, 5_000, 300_000])
def test_what_is_written_takes_its_own_size(length: int) -> None:
    """It may be kept for long: nothing of a writer's buffer stays with it."""
    dumps("warm")
    tracemalloc.start()
    try:
        written = [dumps("x" * length) for _ in range(10)]
        assert tracemalloc.get_traced_memory()[0] < 10 * (length + 100) + 1000
    finally:
        tracemalloc.stop()
    assert len(written) == 10
