"""Requests of Anthropic messages: rounds with their results, texts in results, and asking again."""

import json
from typing import Any

import pytest

from callfuse.dialects.anthropic import Anthropic
from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import Note, Request
from callfuse.model import ToolCall

TOOL = {"name": "f", "input_schema": {"type": "object"}}


def body(*messages: Any, **more: Any) -> bytes:
    """A request body with things in it that a rewrite would show."""
    text = json.dumps({"model": "m", "max_tokens": 100, "messages": messages, "tools": [TOOL, TOOL]} | more, indent=1)
    return text.replace('"model"', '"top_k" : 12345678901234567890123 , "temperature":1.0, "model"').encode()


def request(*messages: Any, raw: bytes | None = None, **more: Any) -> Request:
    """The request as the dialect reads it."""
    text = raw or body(*messages, **more)
    found = Anthropic().read_request(text, json.loads(text))
    assert found is not None
    return found


def user(*blocks: Any) -> dict[str, Any]:
    """A message of the user: blocks, or a text."""
    return {"role": "user", "content": list(blocks) if blocks else "Find it."}


def text(said: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": said}


def calls(*ids: str) -> dict[str, Any]:
    """A round of calls with these ids; their place is their argument."""
    blocks = [{"type": "tool_use", "id": id_, "name": "f", "input": {"n": at}} for at, id_ in enumerate(ids)]
    return {"role": "assistant", "content": [text("Well."), *blocks]}


def result(id_: str, content: Any, **more: Any) -> dict[str, Any]:
    """A result."""
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def outcomes(*messages: Any) -> list[list[str] | None]:
    """Per round, newest first, the texts that came back; None for a user message."""
    return [
        None if one is None else [call.outcome.text if call.outcome else "?" for call in one.calls]
        for one in request(*messages).rounds()
    ]


@pytest.mark.parametrize(
    ("ids", "results", "found"),
    [
        (["a"], [result("a", "1")], ["1"]),
        (["a", "b"], [result("b", "2"), result("a", [text("1")])], ["1", "2"]),
        (["a", "b"], [result("a", "1")], ["1", "?"]),
        (["a", "a"], [result("a", "1"), result("a", "2")], ["1", "2"]),
        (["a"], [text("<system-reminder>x"), result("a", "1")], ["1"]),
        (["a"], [], ["?"]),
    ],
)
def test_results_pair_with_calls(ids: list[str], results: list[Any], found: list[str]) -> None:
    """By id and order; a harness's reminder beside results is no user message."""
    tail = [user(*results)] if results else []
    assert outcomes(user(), calls(*ids), *tail) == [found, None]


@pytest.mark.parametrize(
    ("flag", "failed"), [(None, False), (False, False), (True, True), ("yes", True), ([], False), ({}, False)]
)
def test_a_flag_of_any_shape(flag: object, failed: bool) -> None:
    """What the vendor would refuse is read all the same."""
    round_ = next(request(user(), calls("a"), user(result("a", "1", is_error=flag))).rounds())
    assert round_ is not None
    assert round_.calls[0].failed is failed


def test_a_user_who_types_beside_results() -> None:
    """What a person types while a tool runs stands beside its result: a new timeline, the round before it keeps it."""
    assert outcomes(user(), calls("a"), user(result("a", "1"), text("I fixed it, try again."))) == [None, ["1"], None]


def test_results_in_two_messages() -> None:
    """The vendor joins user messages that follow each other, so both hold results of the round."""
    assert outcomes(user(), calls("a", "b"), user(result("a", "1")), user(result("b", "2"))) == [["1", "2"], None]


@pytest.mark.parametrize(
    "between",
    [
        user(text("<system-reminder>Be brief.")),
        user(text("[callfuse] Think again.")),
        user(text("Validation feedback:\nPlease call a tool.\n\nFix the errors and try again.")),
        {"role": "assistant", "content": "[callfuse] Stopped."},
        {"role": "system", "content": "x"},
        None,
    ],
)
def test_what_starts_no_timeline(between: Any) -> None:
    """Own texts, reminders and everything that no user says."""
    talk = [user(), calls("a"), user(result("a", "1")), between, calls("b"), user(result("b", "2"))]
    assert outcomes(*talk) == [["2"], ["1"], None]
    assert request(*talk).last_user_message()[0] == 0


@pytest.mark.parametrize(
    "between",
    [user(), user(text("Go on.")), user(text("Look:"), {"type": "image"}), user(text("[callfuse] x"), text("y"))],
)
def test_what_starts_one(between: Any) -> None:
    """Whatever a person has said or shown."""
    talk = [user(), calls("a"), user(result("a", "1")), between, calls("b"), user(result("b", "2"))]
    assert outcomes(*talk) == [["2"], None, ["1"], None]


def test_which_calls_make_a_round() -> None:
    """Not the vendor's own, nor those of a program; the error flag goes with a result."""
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "p", "name": "f", "input": {}, "caller": {"type": "code_execution_20250825"}},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]
    talk = [user(), {"role": "assistant", "content": blocks}, user(result("p", "2"), result("a", "1", is_error=True))]
    newest = next(iter(request(*talk).rounds()))
    assert newest is not None
    (found,) = newest.calls
    assert (found.id, found.outcome and found.outcome.kind) == ("a", "error")


def test_big_numbers_keep_their_digits() -> None:
    """Native input is read again where the fast parser has rounded it."""
    one, other = (
        request(raw=body(user(), calls("a")).replace(b'"n": 0', b'"n": ' + digits)).rounds()
        for digits in (b"123456789012345678901", b"123456789012345678902")
    )
    first, second = next(one), next(other)
    assert first is not None
    assert second is not None
    assert first.calls[0].signature != second.calls[0].signature
    assert first.calls[0].signature == ToolCall("", "f", '{"n":123456789012345678901}').signature


@pytest.mark.parametrize(
    ("payload", "is_one"),
    [
        ({"messages": [], "max_tokens": 5}, True),
        ({"messages": [], "anthropic_version": "bedrock-2023-05-31"}, True),
        ({"messages": []}, False),
        ({"prompt": "x", "max_tokens": 5}, False),
        ({"messages": "x", "max_tokens": 5}, False),
        ([], False),
        (None, False),
    ],
)
def test_which_bodies_are_of_the_dialect(payload: Any, is_one: bool) -> None:
    """Messages, and a limit or a version."""
    assert (Anthropic().read_request(b"", payload) is not None) is is_one


@pytest.mark.parametrize(
    ("path", "served"),
    [
        ("/v1/messages", True),
        ("/anthropic/v1/messages", True),
        ("/v1/messages/count_tokens", False),
        ("/v1/messages/batches", False),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict", True),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", True),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", False),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict/", True),
        ("/v1/projects/p/locations/l/publishers/mistralai/models/codestral:rawPredict", False),
        ("/v1/projects/p/locations/l/endpoints/123:rawPredict", True),
        ("/model/anthropic.claude/invoke", True),
        ("/model/anthropic.claude/invoke/", True),
        ("/v1/chat/completions", False),
    ],
)
def test_which_paths_are_served(path: str, served: bool) -> None:
    """At their end, under any prefix."""
    assert Anthropic().serves(path) is served


OWN = "[callfuse] Again?"


@pytest.mark.parametrize(
    ("content", "noted"),
    [
        ("x", f"x\n\n{OWN}"),
        ("", OWN),
        (None, OWN),
        ([text("x")], [text(f"x\n\n{OWN}")]),
        ([text("x"), {"type": "image"}], [text(f"x\n\n{OWN}"), {"type": "image"}]),
        ([{"type": "image"}], [{"type": "image"}, text(OWN)]),
        ([], [text(OWN)]),
    ],
)
def test_a_text_in_a_result_of_any_shape(content: Any, noted: Any) -> None:
    """In its last text, or as a new block; every other byte stays."""
    raw = body(user(), calls("a"), user(text("<system-reminder>"), result("a", content, is_error=False)))
    asked = request(raw=raw)
    newest = next(iter(asked.rounds()))
    assert newest is not None
    made = asked.with_notes([Note(1, newest.calls[0].call, OWN)])
    expected = json.loads(raw)
    expected["messages"][2]["content"][1]["content"] = noted
    assert json.loads(made) == expected
    assert b'"top_k" : 12345678901234567890123 , "temperature":1.0' in made


def test_a_missing_content_is_added() -> None:
    """As a text."""
    asked = request(user(), calls("a"), user({"type": "tool_result", "tool_use_id": "a"}))
    newest = next(iter(asked.rounds()))
    assert newest is not None
    made = json.loads(asked.with_notes([Note(1, newest.calls[0].call, OWN)]))
    assert made["messages"][2]["content"][0]["content"] == OWN


TURN = b'{"role":"assistant","content":[{"type":"tool_use","id":"z","n":1.0}]}'
REPLY = Reply(ToolCall("z", "f", "{}"), "[callfuse] Not run.")


def test_asking_again_adds_turn_and_replies() -> None:
    """The model's turn byte for byte, then one user message with a result for each of its calls."""
    asked = request(user())
    other = Reply(ToolCall("y", "f", "{}"), "[callfuse] Nor this.")
    made = asked.ask_again([Attempt(TURN, [REPLY, other])], AskOptions())
    assert TURN in made
    assert b'"top_k" : 12345678901234567890123 , "temperature":1.0' in made
    *_, answer, replies = json.loads(made)["messages"]
    assert answer == json.loads(TURN)
    assert replies["role"] == "user"
    assert [(one["tool_use_id"], one["content"]) for one in replies["content"]] == [
        ("z", REPLY.text),
        ("y", other.text),
    ]


@pytest.mark.parametrize(
    ("choice", "tools", "loosened"),
    [
        ({"type": "auto"}, 2, {"type": "auto"}),
        ({"type": "none"}, 2, {"type": "none"}),
        ({"type": "any"}, 2, {"type": "any"}),
        ({"type": "any", "disable_parallel_tool_use": True}, 1, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"type": "tool", "name": "f"}, 2, {"type": "auto"}),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            2,
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        (None, 2, None),
    ],
)
def test_a_forced_choice_is_loosened(choice: Any, tools: int, loosened: Any) -> None:
    """One named tool becomes `auto`; `any` stays while another tool is open."""
    asked = request(user(), tool_choice=choice, tools=[TOOL] * tools)
    assert json.loads(asked.ask_again([Attempt(TURN, [REPLY])], AskOptions()))["tool_choice"] == loosened


def test_the_opening_tells_conversations_apart() -> None:
    """System prompt in any shape, and first user message."""
    plain = list(request(user(), system="s").opening())
    assert plain == list(request(user(text("Find it.")), calls("a"), system=[text("s")]).opening())
    assert plain != list(request(user(), system="t").opening())
    assert plain != list(request(user(text("Find that.")), system="s").opening())
