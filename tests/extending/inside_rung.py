"""The new rung at work, in the copy: in settings, on the wire and in process."""

import json
from typing import Any

import pytest

from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.inprocess.detector import LoopDetector
from callfuse.model import ToolCall
from callfuse.policy.rungs import Rung
from callfuse.reference.schema import RUNG
from callfuse.testing import Answer, ScriptedVendor
from tests.extending.chat import exchange, reads, request

MODE = ["nudge", "block"]
NUDGE = "[callfuse] Have another look at what read has returned."
streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def told(vendor: ScriptedVendor) -> Any:
    """What the model that was asked again has read as the result of its call."""
    return json.loads(vendor.requests[1].raw)["messages"][-1]["content"]


def test_it_is_a_rung() -> None:
    """Milder than a steer, and known to settings, schema and error messages."""
    rung = Rung("nudge")
    assert Rung.WARN.hardness < rung.hardness < Rung.STEER.hardness < Rung.BLOCK.hardness
    loop = load_config({"tool_call_loop": {"mode": MODE}}, {}).tool_call_loop
    assert loop.ladder == (rung, Rung.BLOCK)
    assert load_config({}, {"TOOL_LOOP_MODE": "nudge,block"}).tool_call_loop.ladder == loop.ladder
    assert {"nudge", "NUDGE"} <= set(RUNG["enum"])
    with pytest.raises(ConfigError, match="warn, nudge, steer"):
        load_config({"tool_call_loop": {"mode": ["nuge"]}}, {})


@streamed_and_whole
def test_the_model_is_nudged(stream: bool) -> None:
    """Asked again with the rung's own text: its new answer is what the client gets, and nothing of the first call."""
    vendor = ScriptedVendor([reads("a"), Answer("Same words.")])
    met = exchange(vendor, request("aa", stream=stream), mode=MODE)
    assert told(vendor) == NUDGE
    assert b"call_for_a" not in met.body
    assert b"Same words." in met.body
    if not stream:
        assert met.header(b"x-callfuse-action") == b"nudge; kind=repeat; count=3"


@streamed_and_whole
def test_the_next_rung_follows(stream: bool) -> None:
    """Where the model makes the same call."""
    vendor = ScriptedVendor([reads("a"), reads("a")])
    met = exchange(vendor, request("aa", stream=stream), mode=MODE)
    assert len(vendor.requests) == 2
    assert b"call_for_a" not in met.body
    assert b"Stopped a tool call loop" in met.body


def test_it_is_passed_over_where_no_model_can_be_asked() -> None:
    """As any rung that asks: a signed request has the next one."""
    vendor = ScriptedVendor([reads("a")])
    body = request("aa", stream=False)
    signed = (b"content-digest", b"sha-256=:AAAA:")
    met = exchange(vendor, body, headers=(signed,), mode=MODE)
    assert len(vendor.requests) == 1
    assert b"Stopped a tool call loop" in met.body


def test_it_works_in_process() -> None:
    """The call does not run, and the text is what goes back in place of its result."""
    detector = LoopDetector({"tool_call_loop": {"mode": MODE}})
    call = ToolCall("", "read", {"path": "a"})
    found = None
    for _ in range(3):
        found = detector.check(call)
        if found is None:
            detector.record("the text of a")
    assert found is not None
    assert (found.action, found.message, found.withholds) == ("nudge", NUDGE, True)
