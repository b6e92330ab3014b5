"""Fields that another process has written: what callfuse does not write is left out."""

import pytest

from callfuse.observe.reading import read_fields


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e300", "1e400", "NaN", '"1"', "true", "null"])
def test_what_is_no_number(number: str) -> None:
    """Too large for anything, or of another type; the rest stays."""
    found = read_fields(b'{"callfuse.event": "call", "time": %b}' % number.encode())
    assert found in ({"callfuse.event": "call"}, {})


def test_a_number() -> None:
    """Whole or not."""
    assert read_fields(b'{"time": 1767225600.25, "callfuse.blocks": 3}') == {
        "time": 1767225600.25,
        "callfuse.blocks": 3,
    }
