"""Cohere's own ways by small examples: plans, citations, counts, and what is said of a tool choice."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import What
from callfuse.dialects.cohere import Cohere
from tests.support.asgi import Request as Asked
from tests.support.kits.cohere import check, merged, payloads
from tests.support.meeting import MARK, Meeting, meet
from tests.support.scripted import Reply, whole

COHERE = Cohere()
ARGUMENTS = '{"query": "zebra"}'
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("search", "read")]


def call(id_: str = "search_x1", name: str = "search", arguments: str = ARGUMENTS) -> dict[str, Any]:
    """A call."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def ask(*, stream: bool, **more: Any) -> Asked:
    """A conversation that has searched the same thing twice."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Find the zebra."}]
    for at in range(2):
        turns.append({"role": "assistant", "tool_plan": "I will search.", "tool_calls": [call(f"search_h{at}")]})
        turns.append({"role": "tool", "tool_call_id": f"search_h{at}", "content": "nothing"})
    body = {"model": "m", "messages": turns, "tools": TOOLS, "stream": stream, **more}
    return Asked("/v2/chat", json.dumps(body).encode())


def event(kind: str, **more: Any) -> bytes:
    """An event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def streamed(*events: bytes, finish: str = "TOOL_CALL") -> Reply:
    """A stream of these events between start and end."""
    start = event("message-start", id="x", delta={"message": {"role": "assistant", "tool_calls": []}})
    usage = {"billed_units": {"input_tokens": 5, "output_tokens": 3}, "tokens": {"input_tokens": 9, "output_tokens": 4}}
    end = event("message-end", delta={"finish_reason": finish, "usage": usage})
    return Reply((start, *events, end, b"data: [DONE]\n\n"))


def plan(text: str) -> bytes:
    """A piece of a plan."""
    return event("tool-plan-delta", delta={"message": {"tool_plan": text}})


def calling(made: dict[str, Any], index: int = 0) -> bytes:
    """A call in three events."""
    function = {"arguments": made["function"]["arguments"]}
    head = {**made, "function": {**made["function"], "arguments": ""}}
    return (
        event("tool-call-start", index=index, delta={"message": {"tool_calls": head}})
        + event("tool-call-delta", index=index, delta={"message": {"tool_calls": {"function": function}}})
        + event("tool-call-end", index=index)
    )


def cited(text: str, *, index: int = 0) -> bytes:
    """A text with a citation."""
    citation = {"start": 0, "end": 2, "text": text[:2], "sources": [], "content_index": index}
    return (
        event("content-start", index=index, delta={"message": {"content": {"type": "text", "text": ""}}})
        + event("content-delta", index=index, delta={"message": {"content": {"text": text}}})
        + event("citation-start", index=0, delta={"message": {"citations": citation}})
        + event("citation-end", index=0)
        + event("content-end", index=index)
    )


def steered(first: Reply, second: Reply, **more: Any) -> Meeting:
    """The model is asked again."""
    stream = first.chunks[0].startswith(b"event:")
    return meet(ask(stream=stream, **more), [first, second], "chance_then_block")


def test_the_plan_stays_before_a_block() -> None:
    """It has been read already; the block is content of its own."""
    met = meet(ask(stream=True), [streamed(plan("I will"), plan(" search."), calling(call()))])
    message, finish = merged(payloads(met.body))
    assert (message["tool_plan"], finish) == ("I will search.", "COMPLETE")
    (block,) = message["content"]
    assert block["text"].startswith(MARK)
    assert check(met.body) == []


def test_plans_and_citations_of_two_answers() -> None:
    """One plan; content and citations count on, and a citation still names its text."""
    met = steered(
        streamed(plan("One."), cited("So it is."), calling(call())),
        streamed(plan("Two."), cited("Or not."), finish="COMPLETE"),
    )
    message, finish = merged(payloads(met.body))
    assert (message["tool_plan"], finish) == ("One.\n\nTwo.", "COMPLETE")
    assert [block["text"] for block in message["content"]] == ["So it is.", "Or not."]
    found = [part for part in payloads(met.body) if part["type"] == "citation-start"]
    assert [part["index"] for part in found] == [0, 1]
    assert [part["delta"]["message"]["citations"]["content_index"] for part in found] == [0, 1]
    assert check(met.body) == []
    said = json.loads(met.app.heard[1].body)["messages"][-2]
    assert said == {
        "role": "assistant",
        "tool_plan": "One.",
        "content": [{"type": "text", "text": "So it is."}],
        "tool_calls": [call()],
    }


def answer(finish: str = "TOOL_CALL", **message: Any) -> Reply:
    """A whole answer."""
    usage = {"billed_units": {"input_tokens": 5, "output_tokens": 3}, "cached_tokens": 1}
    body = {"id": "x", "finish_reason": finish, "message": {"role": "assistant", **message}, "usage": usage}
    return whole(json.dumps(body).encode())


def test_whole_answers_as_one() -> None:
    """The same, in one object."""
    citation = {"start": 0, "end": 2, "text": "So", "sources": [], "content_index": 0}
    first = answer(
        tool_plan="One.", content=[{"type": "text", "text": "So it is."}], citations=[citation], tool_calls=[call()]
    )
    second = answer("COMPLETE", tool_plan="Two.", content=[{"type": "text", "text": "So so."}], citations=[citation])
    met = steered(first, second)
    found = json.loads(met.body)
    assert found["message"]["tool_plan"] == "One.\n\nTwo."
    assert [block["text"] for block in found["message"]["content"]] == ["So it is.", "So so."]
    assert [one["content_index"] for one in found["message"]["citations"]] == [0, 1]
    assert found["usage"] == {"billed_units": {"input_tokens": 5, "output_tokens": 6}, "cached_tokens": 1}
    assert "citations" not in json.loads(met.app.heard[1].body)["messages"][-2]


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"tool_choice": "REQUIRED"}, "REQUIRED"),
        ({"tool_choice": "REQUIRED", "tools": TOOLS[:1]}, None),
        ({"tool_choice": "NONE"}, "NONE"),
        ({}, None),
    ],
)
def test_a_required_choice(more: dict[str, Any], left: str | None) -> None:
    """It stays while another tool is open."""
    met = steered(answer(tool_calls=[call()]), answer("COMPLETE", content=[{"type": "text", "text": "Ok."}]), **more)
    assert json.loads(met.app.heard[1].body).get("tool_choice") == left


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "ERROR", "TOOL_CALL"])
def test_a_call_without_its_end_is_no_evidence(finish: str) -> None:
    """Whatever the finish reason says."""
    reply = streamed(calling(call()).rsplit(b"event: tool-call-end", 1)[0], finish=finish)
    met = meet(ask(stream=True), [reply])
    assert met.body == reply.body
    reader = COHERE.reader()
    for part in payloads(reply.body)[:-1]:
        reader.read(part)
    assert [one.what for one in reader.read(payloads(reply.body)[-1])] == [What.CUT, What.ENDED]


def test_the_error_setting_is_coheres_own_word() -> None:
    """`finish_reason: error` is ERROR here."""
    met = meet(ask(stream=True), [streamed(calling(call()))], finish_reason="error")
    assert merged(payloads(met.body))[1] == "ERROR"


def test_odd_content_is_not_sent_back() -> None:
    """A text that callfuse cannot put together is named; what nobody is known to want is left out."""
    start = {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}
    odd: dict[str, Any] = {
        "type": "content-delta",
        "delta": {"message": {"content": {"type": "text", "text": "x", "frames": [1]}}},
    }
    turn = json.loads(COHERE.model_turn([start, odd, odd]))
    assert turn["content"] == [{"type": "text", "text": "xx"}]
    odd["delta"]["message"]["content"]["text"] = 7
    with pytest.raises(CannotReplay, match="text"):
        COHERE.model_turn([start, odd])
    with pytest.raises(CannotReplay, match="content"):
        COHERE.model_turn([{**start, "delta": {"message": {}}}])
