"""The hint in a tool's description."""

import pytest

from callfuse import with_loop_hint
from callfuse.inprocess.hint import HINT
from callfuse.model import MARKER


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Searches the web.", f"Searches the web.\n\n{HINT}"),
        ("Searches the web.\n", f"Searches the web.\n\n{HINT}"),
        ("", HINT),
        (" \n", HINT),
    ],
)
def test_it_stands_behind(description: str, expected: str) -> None:
    """Once, however often it is added."""
    assert with_loop_hint(description) == expected
    assert with_loop_hint(expected) == expected


def test_it_is_marked() -> None:
    """As every text of callfuse's is."""
    assert HINT.startswith(MARKER)
