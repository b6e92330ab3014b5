"""What a detector must define, and what it may."""

import pytest

from callfuse.detect.detector import Detector, Hindsight, RoundDetector, Rule
from callfuse.detect.registry import REGISTERED


@pytest.mark.parametrize("base", [Detector, Hindsight])
def test_without_evidence_there_is_no_detector(base: type[Rule]) -> None:
    """Told when it is made, not when it is first asked."""
    half = type("Half", (base,), {"kind": REGISTERED[0].kind})
    with pytest.raises(TypeError, match=r"abstract method '?evidence"):
        half()


@pytest.mark.parametrize("detector", REGISTERED, ids=lambda one: type(one).__name__)
def test_facts_and_kinds_say_the_rest(detector: Rule) -> None:
    """No detector has a flag or a method that is not of its interface."""
    asked = {"kind", "of_cut_off", "parts"}
    if isinstance(detector, Detector | Hindsight):
        asked |= {"needs", "evidence"}
    if isinstance(detector, Detector):
        asked |= {"limits", "recurring"}
    if isinstance(detector, RoundDetector):
        asked |= {"room", "beside"}
    assert {name for name in dir(detector) if not name.startswith("_")} == asked
