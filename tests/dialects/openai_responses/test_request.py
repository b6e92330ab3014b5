"""Requests: what is an exchange, which rounds it holds, and what is changed when the model is asked again."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import AskOptions, Attempt
from callfuse.dialects.openai_responses import OpenAIResponses
from callfuse.dialects.openai_responses.request import ResponsesRequest
from callfuse.model import Round, ToolCall
from tests.dialects.openai_responses.wire import (
    Item,
    built_in,
    function,
    message,
    output,
    reasoning,
    reply,
    request,
    result,
    spinning,
    texts,
)
from tests.support.asgi import Request
from tests.support.meeting import MARK, meet

DIALECT = OpenAIResponses()


def read(*items: Item | str, **more: Any) -> ResponsesRequest:
    """A request as callfuse reads it."""
    body = request(*items, **more).body
    found = DIALECT.read_request(body, json.loads(body))
    assert found is not None
    return found


def told(found: ResponsesRequest) -> list[Any]:
    """The rounds, oldest first: the position, and id and outcome of each call; None for the user."""
    return [
        round_ and (round_.position, [(call.id, call.outcome and call.outcome.text) for call in round_.calls])
        for round_ in reversed(list(found.rounds()))
    ]


@pytest.mark.parametrize(
    ("path", "serves"),
    [
        ("/v1/responses", True),
        ("/v1/responses/", True),
        ("/openai/deployments/x/responses", True),
        ("/backend-api/codex/responses", True),
        ("/v1/responses/resp_1", False),
        ("/v1/responses/resp_1/cancel", False),
        ("/v1/responses/compact", False),
        ("/v1/responses/input_tokens", False),
        ("/v1/responses/resp_1/input_items", False),
    ],
)
def test_paths(path: str, serves: bool) -> None:
    """Stored responses, and what is below them, are no exchanges."""
    assert DIALECT.serves(path) is serves


def test_rounds() -> None:
    """A run of the model's items is one round; it begins behind a result or another speaker's message."""
    one, two, three = (function(f"call_{at}") for at in range(3))
    found = read("Go.", reasoning(), message(), one, two, result(two, "b"), result(one, "a"), three, result(three, "c"))
    assert told(found) == [None, (1, [("call_0", "a"), ("call_1", "b")]), (7, [("call_2", "c")])]


def test_results_that_lack() -> None:
    """A call without a result has no outcome; reminders and callfuse's own words are not the user's."""
    one, two = function("call_1"), function("call_2")
    found = read("Go.", one, "<system-reminder>mind</system-reminder>", two, result(two, "b"), "Stop.")
    assert told(found) == [None, (1, [("call_1", None)]), (3, [("call_2", "b")]), None]


def test_outcomes_of_built_in_tools() -> None:
    """A shell's streams and exit codes, a patch's failure, a screen's bytes: each part counts."""
    shell = built_in("shell_call")
    failed = result(shell, "x")
    failed["output"][0]["outcome"]["exit_code"] = 2
    ways = [result(shell, "x"), result(shell, "y"), failed]
    outcomes = [next(iter(read(shell, way).rounds())) for way in ways]
    digests = {call.outcome.digest for round_ in outcomes if round_ for call in round_.calls if call.outcome}
    assert len(digests) == len(ways)
    patch = built_in("apply_patch_call")
    (round_,) = read(patch, result(patch) | {"status": "failed"}).rounds()
    assert isinstance(round_, Round)
    assert round_.calls[0].outcome is not None
    assert round_.calls[0].outcome.kind == "error"
    screen = built_in("computer_call")
    screens = [next(iter(read(screen, result(screen, text)).rounds())) for text in ("a", "b")]
    one, other = (round_.calls[0].outcome for round_ in screens if round_)
    assert one != other


def test_references_find_their_calls() -> None:
    """Items named by reference are known by the results behind them, where the ledger knows these."""
    one = function("call_1")
    found = read("Go.", {"type": "item_reference", "id": "fc_1"}, result(one, "a"), "And?")
    assert told(found) == [None, None]
    found.recall({"call_1": ToolCall("call_1", "search", "{}")}.get, b"")
    assert told(found) == [None, (1, [("call_1", "a")]), None]


def test_a_result_that_comes_late_is_no_round_of_its_own() -> None:
    """Where its call stands in the input, nothing is recalled."""
    one, two = function("call_1"), function("call_2")
    found = read("Go.", one, two, result(one, "a"), message(), result(two, "b"))
    found.recall({id_: ToolCall(id_, "search", "{}") for id_ in ("call_1", "call_2")}.get, b"")
    assert told(found) == [None, (1, [("call_1", "a"), ("call_2", None)])]


def test_a_plain_text_is_an_input() -> None:
    """It is the user's message, and becomes a list where the model is asked again."""
    body = {"model": "m", "input": "Gö \u2028", "tools": [{"type": "function", "name": "search"}], "store": False}
    encoded = json.dumps(body).encode()
    found = DIALECT.read_request(encoded, body)
    assert found is not None
    assert (found.length, found.last_user_message()[0]) == (1, 0)
    turn = DIALECT.model_turn_of_whole(b'{"id":"r","output":[]}', {"id": "r", "output": []})
    asked = json.loads(found.ask_again([Attempt(b'{"output":[{"type":"message","n":1}]}', ())], AskOptions()))
    assert turn == b'{"id":"r","output":[]}'
    assert asked["input"] == [{"role": "user", "content": "Gö \u2028"}, {"type": "message", "n": 1}]


@pytest.mark.parametrize(
    ("choice", "tools", "loosened"),
    [
        ("auto", 2, "auto"),
        ("none", 1, "none"),
        ("required", 2, "required"),
        ("required", 1, "auto"),
        ({"type": "function", "name": "search"}, 2, "auto"),
        ({"type": "custom", "name": "sql"}, 2, "auto"),
        ({"type": "allowed_tools", "mode": "required", "tools": [1, 2]}, 2, "same"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [1]},
            2,
            {"type": "allowed_tools", "mode": "auto", "tools": [1]},
        ),
    ],
)
def test_a_forced_choice_is_loosened(choice: Any, tools: int, loosened: Any) -> None:
    """`required` stays while another tool is open; a choice that names one tool becomes `auto`."""
    offered = [{"type": "function", "name": f"tool_{at}"} for at in range(tools)]
    asked = request(*spinning(function()), tool_choice=choice, tools=offered)
    met = meet(asked, [reply(function()), reply(message("Else."), tag="two")], "chance_then_block")
    assert json.loads(met.app.heard[1].body)["tool_choice"] == (choice if loosened == "same" else loosened)


@pytest.mark.parametrize("form", [{"type": "json_schema", "name": "x", "schema": {}}, {"type": "json_object"}])
def test_structured_output_is_refused_in_its_own_way(form: Item) -> None:
    """The block is a refusal; and a stream that has sent text already is not asked again."""
    call = function()
    asked = request(*spinning(call), text={"format": form})
    met = meet(asked, [reply(message(), call)], "chance_then_block")
    assert len(met.app.heard) == 1
    (part,) = output(met.body)[-1]["content"]
    assert part["type"] == "refusal"
    assert part["refusal"].startswith(MARK)
    silent = meet(asked, [reply(call), reply(message("{}"), tag="two")], "chance_then_block")
    assert texts(output(silent.body)) == ["{}"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": 7}',
        b'{"input": null, "model": "m"}',
        b'{"messages": []}',
        b'{"input": [1, null, {"type": 7}, {"role": []}], "tools": [1]}',
        b'{"input": [], "tools": [1], "text": null, "previous_response_id": 3}',
    ],
)
def test_odd_bodies_pass(body: bytes) -> None:
    """What is no request of the dialect, or one that nobody would understand, reaches the app as it is."""
    script = reply(function())
    met = meet(Request("/v1/responses", body), [script])
    assert met.app.heard[0].body == body
    assert met.body == script.body
    assert met.log == ()
