"""What a detector must define."""

import pytest

from callfuse.detect.detector import Detector, Hindsight, Rule
from callfuse.detect.registry import REGISTERED


@pytest.mark.parametrize("base", [Detector, Hindsight])
def test_without_evidence_there_is_no_detector(base: type[Rule]) -> None:
    """Told when it is made, not when it is first asked."""
    half = type("Half", (base,), {"kind": REGISTERED[0].kind})
    with pytest.raises(TypeError, match=r"abstract method '?evidence"):
        half()
