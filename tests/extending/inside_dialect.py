"""The new dialect at work, in the copy: blocked and steered, streamed and whole; warned, refused and replayed."""

import json
from typing import Any

import pytest

from callfuse.config import load_config
from callfuse.dialects import dialect_of, error_body, recognise_answer, recognise_request
from callfuse.testing import Answer, Call, ScriptedVendor
from tests.extending.chat import guarded
from tests.support.asgi import Exchange, Request, run

PATH = "/v1/jot/chat"
streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def request(times: int, *, stream: bool) -> bytes:
    """A chat in which one call was made so many times."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read it."}]
    for at in range(times):
        call = {"id": f"c{at}", "name": "read", "arguments": {"path": "a"}}
        messages.append({"role": "assistant", "content": "", "calls": [call]})
        messages.append({"role": "tool", "id": f"c{at}", "content": "nothing"})
    return json.dumps({"model": "jot-1", "stream": stream, "tools": ["read"], "messages": messages}).encode()


def reads(path: str, id_: str) -> Answer:
    """The model says something and reads a file."""
    return Answer("Let me look.", [Call("read", {"path": path}, id_)])


def exchange(vendor: ScriptedVendor, body: bytes, **settings: Any) -> Exchange:
    """One exchange with the vendor behind the guard."""
    return run(guarded(vendor, **settings), Request(PATH, body))


def read(body: bytes, *, stream: bool) -> tuple[str, list[str], str]:
    """What a client has of an answer: the text, the ids of the calls, and why it ended."""
    if not stream:
        answer = json.loads(body)
        return answer["text"], [call["id"] for call in answer["calls"]], answer["end"]
    lines = [json.loads(line) for line in body.splitlines() if line]
    assert [at for at, line in enumerate(lines) if "end" in line] == [len(lines) - 1]
    text = "".join(line.get("text", "") for line in lines)
    return text, [line["call"]["id"] for line in lines if "call" in line], lines[-1]["end"]


@streamed_and_whole
def test_a_loop_is_blocked(stream: bool) -> None:
    """The client gets the text before the call, why it was stopped, and no call."""
    met = exchange(ScriptedVendor([reads("a", "again")]), request(2, stream=stream), mode="block")
    text, calls, end = read(met.body, stream=stream)
    assert text.startswith("Let me look.\n\n[callfuse] Stopped a tool call loop")
    assert (calls, end) == ([], "stop")
    assert b"again" not in met.body


@streamed_and_whole
def test_a_healthy_answer_is_untouched(stream: bool) -> None:
    """Byte for byte."""
    body = request(2, stream=stream)
    bare = run(ScriptedVendor([reads("b", "new")]), Request(PATH, body))
    assert exchange(ScriptedVendor([reads("b", "new")]), body, mode="block").body == bare.body


@streamed_and_whole
def test_a_text_that_runs_away_is_told(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Byte for byte it leaves."""
    body, answer = request(0, stream=stream), Answer("The sauce must be stirred until it is thick. " * 8_000)
    bare = run(ScriptedVendor([answer]), Request(PATH, body))
    assert exchange(ScriptedVendor([answer]), body).body == bare.body
    assert ["tool=(text)" in record.getMessage() for record in caplog.records] == [True]


@streamed_and_whole
def test_the_model_is_steered(stream: bool) -> None:
    """Its second answer goes on from the first, and the vendor takes the request."""
    vendor = ScriptedVendor([reads("a", "again"), reads("b", "other")])
    met = exchange(vendor, request(2, stream=stream), mode="chance_then_block")
    text, calls, end = read(met.body, stream=stream)
    assert (calls, end) == (["other"], "calls")
    assert text.count("Let me look.") == 2
    asked = json.loads(vendor.requests[1].raw)
    assert asked["messages"][-1]["content"].startswith("[callfuse]")
    calls = [call["id"] for one in asked["messages"] for call in one.get("calls", ())]
    assert calls == [one["id"] for one in asked["messages"] if one["role"] == "tool"]


def test_a_rung_that_it_cannot_take_is_passed_over() -> None:
    """It has no way to forbid calls: the next rung is taken."""
    vendor = ScriptedVendor([reads("a", "again")])
    met = exchange(vendor, request(2, stream=True), mode=["force_text", "block"])
    assert len(vendor.requests) == 1
    assert b"Stopped a tool call loop" in met.body


def test_a_loop_is_warned_of() -> None:
    """In the result of the repeated call."""
    vendor = ScriptedVendor([Answer("Done.")])
    exchange(vendor, request(3, stream=False), mode="warn")
    assert "[callfuse]" in json.loads(vendor.requests[0].raw)["messages"][-1]["content"]


def test_it_is_known_everywhere() -> None:
    """By its path, by recorded bodies, as a backend, and in errors."""
    dialect = dialect_of(PATH)
    assert dialect is not None
    assert dialect.name == "jot"
    assert "jot" in load_config({}, {}).backends
    assert json.loads(error_body(PATH, 400, "no")[0]) == {"error": "no"}
    asked = recognise_request(json.loads(request(1, stream=False)))
    said = recognise_answer({"text": "", "calls": [], "end": "stop"})
    assert asked is not None
    assert said is not None
    assert asked[0] is said[0] is dialect
