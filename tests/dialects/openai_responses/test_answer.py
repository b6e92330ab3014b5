"""Answers of every kind through the middleware: each way to call, each vendor's way to stream."""

import json
from typing import Any

import pytest

from callfuse.dialects.openai_responses.answer import ResponsesReader
from callfuse.wire import sse
from tests.dialects.openai_responses.wire import (
    Habits,
    Item,
    built_in,
    function,
    message,
    output,
    reasoning,
    reply,
    request,
    response,
    result,
    spinning,
    stream,
    texts,
    whole_reply,
)
from tests.support.meeting import MARK, Meeting, meet
from tests.support.scripted import Reply
from tests.support.wire import bytewise, events

CALLS = [
    function(),
    built_in("custom_tool_call"),
    built_in("shell_call"),
    built_in("local_shell_call"),
    built_in("apply_patch_call"),
]
COMPUTER = built_in("computer_call")
MUTE = [built_in("tool_search_call"), COMPUTER]
"""Calls whose results have no room for a text."""
AS_OTHERS: dict[str, Any] = {"screen_tools": []}
"""The limits of what acts on a screen are those of all."""

every_call = pytest.mark.parametrize("call", CALLS, ids=lambda item: item["type"])
mute_call = pytest.mark.parametrize("call", MUTE, ids=lambda item: item["type"])


def blocked(met: Meeting, call: Item) -> None:
    """The call is gone and a message stands in its place."""
    assert call["call_id"].encode() not in met.body
    assert texts(output(met.body))[-1].startswith(MARK)


@pytest.mark.parametrize("call", CALLS + MUTE, ids=lambda item: item["type"])
def test_a_third_call_is_blocked(call: Item) -> None:
    """Whatever the client is to execute, streamed or whole."""
    blocked(meet(request(*spinning(call)), [reply(message(), call)], **AS_OTHERS), call)
    met = meet(request(*spinning(call), stream=False), [whole_reply(message(), call)], **AS_OTHERS)
    items = json.loads(met.body)["output"]
    assert [item["type"] for item in items] == ["message", "message"]
    assert texts(items)[-1].startswith(MARK)


def test_a_call_of_computer_use_is_blocked_from_ten_on() -> None:
    """A click may change what the same screenshot does not show."""
    script = reply(message(), COMPUTER)
    assert meet(request(*spinning(COMPUTER, 8)), [script]).body == script.body
    blocked(meet(request(*spinning(COMPUTER, 9)), [script]), COMPUTER)


@every_call
def test_a_call_is_steered_by_a_result_of_its_own_kind(call: Item) -> None:
    """The model reads the guidance in the very item that would answer its call."""
    met = meet(request(*spinning(call)), [reply(call), reply(message("Else."), tag="two")], "chance_then_block")
    asked = json.loads(met.app.heard[1].body)["input"]
    assert asked[-2] == call
    assert (asked[-1]["type"], asked[-1]["call_id"]) == (result(call)["type"], call["call_id"])
    assert MARK in json.dumps(asked[-1]["output"])
    assert texts(output(met.body)) == ["Else."]


@mute_call
def test_a_call_whose_result_takes_no_text_is_not_asked_about(call: Item) -> None:
    """A steer becomes the next rung."""
    met = meet(request(*spinning(call)), [reply(call)], "chance_then_block", **AS_OTHERS)
    assert len(met.app.heard) == 1
    blocked(met, call)


@mute_call
def test_nor_is_one_that_the_terminal_event_does_not_list(call: Item) -> None:
    """Its output has other items than those that were streamed: that is no error of callfuse."""
    begun, other = stream(call), stream(message())
    body = begun[: begun.index(b"event: response.completed")] + other[other.index(b"event: response.completed") :]
    met = meet(request(*spinning(call)), [Reply((body,))], "chance_then_block", **AS_OTHERS)
    assert not any("failed open" in text for _, _, text in met.log), met.log
    assert len(met.app.heard) == 1
    assert call["call_id"].encode() not in met.body


@every_call
def test_a_warning_stands_in_the_result(call: Item) -> None:
    """In the last text that it has, and every other byte stays."""
    asked = request(*spinning(call, 3))
    met = meet(asked, [reply(message())], "warn")
    items = json.loads(met.app.heard[0].body)["input"]
    assert [MARK in json.dumps(item) for item in items] == [False] * 6 + [True]
    assert items[:-1] == json.loads(asked.body)["input"][:-1]


@mute_call
def test_a_result_that_takes_no_text_gets_none(call: Item) -> None:
    """The request stays as it is."""
    asked = request(*spinning(call, 3))
    assert meet(asked, [reply(message())], "warn").app.heard[0].body == asked.body


@pytest.mark.parametrize(
    "call",
    [
        function(caller={"type": "program", "caller_id": "call_p"}),
        built_in("shell_call", environment={"type": "container_reference", "container_id": "c"}),
        built_in("tool_search_call", execution="server"),
        {"id": "mcp_1", "type": "mcp_call", "name": "search", "arguments": "{}", "server_label": "s", "output": "x"},
        {"id": "mcpr_1", "type": "mcp_approval_request", "name": "search", "arguments": "{}", "server_label": "s"},
        {"id": "ws_1", "type": "web_search_call", "status": "completed"},
    ],
    ids=lambda item: item["type"],
)
def test_what_the_client_does_not_execute_is_never_held(call: Item) -> None:
    """Calls of a program's, and of tools that the vendor runs, pass however often they come."""
    script = reply(call)
    again = [call | {"id": f"it_{at}"} for at in range(3)]
    assert meet(request("Go.", *again), [script]).body == script.body


def test_a_namespace_is_part_of_a_calls_name() -> None:
    """The same tool name in two namespaces is two tools."""
    one, other = function(namespace="crm"), function(namespace="shop")
    assert meet(request(*spinning(one)), [reply(other)]).body == reply(other).body
    blocked(meet(request(*spinning(one)), [reply(one)]), one)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_calls_of_tool": 2},
        {"per_tool": {"search": {"max_calls": 2}}},
        {"per_tool": {"crm.*": {"max_calls": 2}}},
        {"ladder": "warn", "per_tool": {"crm.*": {"mode": "block", "max_calls": 2}}},
    ],
)
def test_a_tool_of_a_namespace_has_its_budget(settings: dict[str, Any]) -> None:
    """Streamed and whole: its calls are counted under its full name."""
    calls = [function(f"call_{at}", namespace="crm", arguments=f'{{"q":{at}}}') for at in range(3)]
    past: list[Item | str] = ["Go.", *(item for call in calls[:2] for item in (call, result(call)))]
    blocked(meet(request(*past), [reply(calls[2])], **settings), calls[2])
    assert b"call_2" not in meet(request(*past, stream=False), [whole_reply(calls[2])], **settings).body


@pytest.mark.parametrize(
    "habits",
    [
        Habits(),
        Habits(numbered=False),
        Habits(named=False),
        Habits(data_first=True),
        Habits(final_output=False),
        Habits(done=True),
        Habits(bare=True),
    ],
    ids=["usual", "unnumbered", "unnamed", "data first", "empty output", "done sentinel", "items at their end"],
)
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_every_way_of_streaming(habits: Habits, ladder: str) -> None:
    """However a vendor streams, the client's stream is one: indexes, numbers and the output at the end fit."""
    call = function()
    scripts = [reply(reasoning(encrypted_content="e"), message(), call, habits=habits)]
    scripts.append(reply(message("Else.", id="msg_2"), function("call_2", arguments="{}"), tag="two", habits=habits))
    whole, cut = (
        meet(request(*spinning(call)), [script.cut(way(script.body)) for script in scripts], ladder)
        for way in (lambda body: (body,), bytewise)
    )
    assert whole.body == cut.body
    assert b"call_1" not in whole.body
    items = output(whole.body)
    if ladder == "block":
        assert [item["type"] for item in items] == ["reasoning", "message", "message"]
    else:
        assert [item["type"] for item in items] == ["reasoning", "message", "message", "function_call"]
    said = [json.loads(event.data) for event in events(whole.body) if event.data != "[DONE]"]
    numbers = [event["sequence_number"] for event in said if "sequence_number" in event]
    assert numbers == (list(range(len(said))) if habits.numbered else sorted(numbers))
    assert {event["response"]["id"] for event in said if "response" in event} == {"resp_one"}
    assert whole.body.count(b"[DONE]") == habits.done


@pytest.mark.parametrize("final_output", [True, False], ids=["full", "empty"])
def test_a_survivor_is_renumbered(final_output: bool) -> None:
    """The terminal event has what was streamed, be its own output full or empty."""
    known = function("call_k", name="read", arguments='{"p":1}')
    history = ["Go.", known, result(known), *spinning(function())[1:]]
    answer = reply(message(), function(), known | {"call_id": "call_2"}, habits=Habits(final_output=final_output))
    met = meet(request(*history), [answer])
    assert [item["type"] for item in output(met.body)] == ["message", "function_call"]
    assert b"call_1" not in met.body


def test_the_phase_of_a_message() -> None:
    """Where the vendor's messages have a phase, callfuse's own is a final answer."""
    call = function()
    met = meet(request(*spinning(call)), [reply(message(phase="commentary"), call)])
    assert output(met.body)[-1]["phase"] == "final_answer"
    assert "phase" not in output(meet(request(*spinning(call)), [reply(message(), call)]).body)[-1]


def test_a_call_that_only_the_terminal_event_has() -> None:
    """It is read there, held there, and taken out there."""
    call = function()
    body = stream(message())
    ended = json.dumps(response("one", "completed", [message(), call]))
    said = json.dumps(response("one", "completed", [message()]))
    assert said.encode() in body
    met = meet(request(*spinning(call)), [Reply((body.replace(said.encode(), ended.encode()),))])
    blocked(met, call)


def test_a_call_that_is_cut_off_is_no_evidence() -> None:
    """An answer that ends for want of tokens in the middle of a call passes as it came."""
    call = function(status="incomplete", arguments='{"q":')
    for script in (reply(message(), call, habits=Habits(end="incomplete")), reply(message(), function())):
        met = meet(request(*spinning(function())), [script])
        assert (met.body == script.body) is (b"response.incomplete" in script.body)


def test_a_failed_answer_passes() -> None:
    """What is held comes out before the failure."""
    script = reply(message(), function(), habits=Habits(end="failed"))
    assert meet(request(*spinning(function())), [script], "chance_then_block").body == script.body


def test_while_an_approval_is_asked_for_nothing_is_withheld() -> None:
    """An answer that waits for the user's word on the vendor's own tool is not ended by a block."""
    asks = {"id": "mcpr_1", "type": "mcp_approval_request", "name": "pay", "arguments": "{}", "server_label": "s"}
    script = reply(asks, function())
    assert meet(request(*spinning(function())), [script]).body == script.body


def test_reasoning_that_nobody_can_give_back_is_not_asked_about() -> None:
    """Without its encrypted content, and with nothing stored, the model's turn cannot be rebuilt."""
    history = request(*spinning(function()))
    met = meet(history, [reply(reasoning(), function())], "chance_then_block")
    assert len(met.app.heard) == 1
    assert texts(output(met.body))[-1].startswith(MARK)
    met = meet(
        request(*spinning(function()), stream=False), [whole_reply(reasoning(), function())], "chance_then_block"
    )
    assert len(met.app.heard) == 1


@pytest.mark.parametrize("kind", ["an_item_of_tomorrow", "compaction_of_tomorrow"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_an_unknown_item_is_left_out_of_the_turn(kind: str, *, streamed: bool) -> None:
    """It may not be good as input; the client has it."""
    odd = {"id": "odd_1", "type": kind, "payload": {"big": 12345678901234567890}}
    answered = reply if streamed else whole_reply
    asked = request(*spinning(function()), stream=streamed)
    met = meet(asked, [answered(odd, function()), answered(message("Done."))], "chance_then_block")
    assert len(met.app.heard) == 2
    assert kind.encode() not in met.app.heard[1].body
    assert kind.encode() in met.body


def test_a_call_without_a_name_key_is_held() -> None:
    """Its name may come with its end; it is no built-in tool."""
    nameless = {key: value for key, value in function().items() if key != "name"}
    reader = ResponsesReader()
    (event,) = reader.read({"type": "response.output_item.added", "output_index": 0, "item": nameless})
    assert event.call is not None
    assert event.call.name == ""
    reader.read({"type": "response.output_item.done", "output_index": 0, "item": function()})
    assert event.call.name == "search"


@pytest.mark.parametrize("told", [{}, {"item_id": 0}, {"item_id": "fc_another"}])
@pytest.mark.parametrize("mode", ["block", "chance_then_block"])
def test_a_call_that_begins_without_its_place_is_one_with_its_end(told: dict[str, Any], mode: str) -> None:
    """None of its events leaves where the call is withheld."""
    said = [json.loads(event.data) for event in events(stream(function()))]
    said[1] = {key: value for key, value in said[1].items() if key != "output_index"} | told
    odd = Reply((b"".join(sse.event(json.dumps(payload).encode()) for payload in said),))
    met = meet(request(*spinning(function())), [odd, reply(message("Done."))], mode)
    assert b"call_1" not in met.body
    assert len(met.app.heard) == (2 if mode == "chance_then_block" else 1)


def test_an_answer_in_the_background() -> None:
    """What is polled for passes, as there is no answer yet that could be guarded; what is streamed is guarded."""
    script = whole_reply(status="queued")
    asked = request(*spinning(function()), background=True, stream=False)
    assert meet(asked, [script], "warn").body == script.body
    assert meet(asked, [script], "warn").app.heard[0].body == asked.body
    met = meet(request(*spinning(function()), background=True), [reply(function())])
    assert MARK in met.body.decode()
