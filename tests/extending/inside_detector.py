"""The new detector at work, in the copy: in settings, texts and tools, and on the wire."""

import json
from pathlib import Path
from typing import Any

import pytest

from callfuse.config import load_config
from callfuse.detect.registry import KINDS
from callfuse.errors import ConfigError
from callfuse.inprocess.detector import LoopDetector
from callfuse.model import ToolCall
from callfuse.offline.tuning import DETECTORS
from callfuse.policy.sections import LIMITS
from callfuse.reference.keys import reference
from callfuse.reference.schema import json_schema
from callfuse.reference.template import template
from callfuse.testing import Answer, ScriptedVendor
from tests.extending.chat import exchange, reads, request

ALONE: dict[str, Any] = {"max_repeats": 0, "detectors": {**dict.fromkeys(LIMITS, False), "monotone": 3}}
SEEN = "round 3 in a row that calls nothing but read"
CAPPED = bool(KINDS["monotone"].most)
streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def test_its_limit_is_a_setting(tmp_path: Path) -> None:
    """With its default, from a file under the name of its unit, from the environment, and for one tool."""
    assert load_config({}, {}).tool_call_loop.detectors.monotone == 3
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop: {per_tool: {ls: {detectors: {monotone: {rounds: 5}}}}}", encoding="utf-8")
    loop = load_config(file, {"CALLFUSE_DETECTORS_MONOTONE": "7"}).tool_call_loop
    assert loop.detectors.monotone == 7
    assert loop.for_tool("ls").settings.detectors.monotone == 5
    with pytest.raises(ConfigError, match=r"use false, true, a whole number from 2, or a mapping"):
        load_config({"tool_call_loop": {"detectors": {"monotone": 1}}}, {})
    with pytest.raises(ConfigError, match=r"did you mean tool_call_loop\.detectors\.monotone"):
        load_config({"tool_call_loop": {"detectors": {"monotne": 4}}}, {})


def test_it_is_documented() -> None:
    """In the reference, the template and the schema."""
    (key,) = (key for key in reference() if key.path[-1] == "monotone")
    assert (key.default, key.variable) == (3, "CALLFUSE_DETECTORS_MONOTONE")
    assert key.text == "Rounds in a row that call one tool and no other."
    assert "#monotone: 3" in template()
    definitions = json_schema()["$defs"]
    assert definitions["Detectors"]["properties"]["monotone"]["description"] == key.text
    assert "monotone" in definitions["SomeDetectors"]["properties"]


def test_it_can_be_tuned_and_replayed() -> None:
    """With the others: its limit moves along the scale."""
    assert DETECTORS["monotone"].at(11) == 3
    assert "monotone" in KINDS


def test_it_is_found_in_process() -> None:
    """By its name, with its sentences."""
    detector = LoopDetector({"tool_call_loop": {**ALONE, "mode": "warn"}})
    found = [detector.check(ToolCall("", "read", {"path": path})) for path in "abc"]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].kind == "monotone"
    assert (found[2].description, found[2].suggestion) == (SEEN, "See what the other tools can do.")
    assert json.loads(json.dumps(found[2].kind)) == "monotone"


@pytest.mark.skipif(CAPPED, reason="it warns at most")
@streamed_and_whole
def test_it_blocks(stream: bool) -> None:
    """On the wire: no part of the call reaches the client, and the text says why."""
    vendor = ScriptedVendor([reads("c")])
    met = exchange(vendor, request("ab", stream=stream), mode="block", **ALONE)
    assert SEEN.encode() in met.body
    assert b"call_for_c" not in met.body
    free = exchange(ScriptedVendor([reads("b")]), request("a", stream=stream), mode="block", **ALONE)
    assert b"call_for_b" in free.body


@pytest.mark.skipif(not CAPPED, reason="it may take any rung")
@streamed_and_whole
def test_it_warns_at_most(stream: bool) -> None:
    """Whatever the ladder, and though the finding is hard: the call goes out as it came, and its result says so."""
    vendor = ScriptedVendor([reads("c"), reads("g"), Answer("Done.")])
    met = exchange(vendor, request("ab", stream=stream), mode="block", **ALONE)
    hard = exchange(vendor, request("abcdef", stream=stream), mode="block", **ALONE)
    assert b"call_for_c" in met.body
    assert b"call_for_g" in hard.body
    exchange(vendor, request("abc", stream=stream), mode="block", **ALONE)
    first, _, last = vendor.requests
    assert SEEN.encode() in last.raw
    assert b"[callfuse]" not in first.raw
