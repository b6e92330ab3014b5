"""What an exchange costs in calls of callfuse's own functions and in files: ceilings, so that no cost comes unseen.

A change that makes a way cheaper lowers its ceiling here.
"""

import pytest
from benchmarks.ways import WAYS, measure

CEILINGS = {
    "short": (256, 56),
    "long": (768, 70),
    "agent": (744, 72),
    "longer": (972, 93),
    "call": (705, 79),
    "coalesced": (612, 79),
    "held": (2149, 104),
    "blocked": (7886, 122),
}
"""The most calls and files of each way."""


@pytest.mark.parametrize("way", WAYS)
def test_an_exchange_stays_under_its_ceiling(way: str) -> None:
    """An exchange makes no more calls of callfuse's own functions, in no more files, than its way may cost."""
    cost = measure(way)
    calls, files = CEILINGS[way]
    assert cost.calls <= calls, cost.functions.most_common(20)
    assert cost.files <= files
