"""Calls that go on with what results have shown, where the cap of the kind is lifted."""

from callfuse.detect import Engine
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, timeline


def test_a_tool_with_a_longer_pause_is_foreseen() -> None:
    """What is found under a tool's own settings is foreseen, though those of all others find nothing."""
    lifted = {"error_rate": 3, "error_rate_most": "block"}
    settings = LoopSettings.model_validate(
        {"ttl_seconds": 100, "detectors": lifted, "per_tool": {"a": {"ttl_seconds": 1000}}}
    )
    texts, times = ["a1=!x", "a2=!y", "a3=!z"], [0.0, 200.0, 400.0]
    engine = Engine(timeline(*texts, times=times, now=600.0), settings)
    finding = engine.judge(call("a3"))
    assert finding is not None
    assert finding.kind == "error_rate"
    assert "error_rate" in [hit.kind for hit in engine.possible("a")]
    others = Engine(timeline(*[text.replace("a", "b") for text in texts], times=times, now=600.0), settings)
    assert others.judge(call("b3")) is None
