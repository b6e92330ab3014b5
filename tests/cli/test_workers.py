"""What a parent process hands to its workers."""

import gc

import pytest

from callfuse.cli.reload import Origin
from callfuse.cli.serve import ServeSetup, decode_setup, encode_setup, freeze_heap
from callfuse.config import resolve

GIVEN = {
    "store": "redis://me:s3cret@h",
    "tool_call_loop": {
        "mode": ["warn", "block"],
        "max_repeats": 3,
        "detectors": {"cycle": False},
        "commands": False,
        "per_tool": {"search_*": {"mode": "observe", "ignore": ["at"], "detectors": {"no_news": 7}}},
        "models": {"openai:*": {"similarity_threshold": 0.5}},
    },
    "serve": {"routes": ["/own=http://h"], "log_level": "DEBUG"},
}


OPTIONS = {"store": "memory://", "serve": {"port": 1, "host": None}}


@pytest.mark.parametrize("origin", [None, Origin("c.yaml", OPTIONS, "1 2 3")])
@pytest.mark.parametrize("given", [GIVEN, {}])
def test_a_worker_has_what_its_parent_resolved(given: dict[str, object], origin: Origin | None) -> None:
    """Value by value, and it knows as well as its parent which of them are defaults."""
    settled = ServeSetup(resolve(given, {}), origin, "token-of-the-test")
    assert decode_setup(encode_setup(settled)) == settled
    config, taken = settled.resolved.config, decode_setup(encode_setup(settled)).resolved.config
    assert taken.tool_call_loop.model_fields_set == config.tool_call_loop.model_fields_set
    assert taken.tool_call_loop.model_fields_set == set(given.get("tool_call_loop", {}))  # type: ignore[call-overload]


@pytest.mark.usefixtures("frozen_heap")
def test_the_collector_runs_as_often_as_python_wants() -> None:
    """A high threshold would let cycles of libraries keep bodies: it counts objects, not bytes."""
    before = gc.get_threshold()
    freeze_heap()
    assert gc.get_threshold() == before
