"""Requests of OpenAI chat completions: rounds with their results, texts in results, and asking again."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import Note, Request
from callfuse.dialects.openai_chat import OpenAIChat
from callfuse.model import ToolCall

TOOL = {"type": "function", "function": {"name": "f"}}


def body(*messages: Any, **more: Any) -> bytes:
    """A request body with things in it that a rewrite would show."""
    text = json.dumps({"model": "m", "messages": messages, "tools": [TOOL, TOOL]} | more, indent=1)
    return text.replace('"model"', '"seed" : 12345678901234567890123 , "temperature":1.0, "model"').encode()


def request(*messages: Any, raw: bytes | None = None, **more: Any) -> Request:
    """The request as the dialect reads it."""
    text = raw or body(*messages, **more)
    found = OpenAIChat().read_request(text, json.loads(text))
    assert found is not None
    return found


def user(content: Any = "Find it.") -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": content}


def calls(*ids: str, name: str = "f") -> dict[str, Any]:
    """A round of calls with these ids; their place is their argument."""
    parts = [{"id": id_, "function": {"name": name, "arguments": f'{{"n":{at}}}'}} for at, id_ in enumerate(ids)]
    return {"role": "assistant", "content": None, "tool_calls": parts}


def result(id_: str | None, content: Any) -> dict[str, Any]:
    """A result."""
    return {"role": "tool", "tool_call_id": id_, "content": content}


def outcomes(*messages: Any) -> list[list[str] | None]:
    """Per round, newest first, the texts that came back; None for a user message."""
    return [
        None if one is None else [call.outcome.text if call.outcome else "?" for call in one.calls]
        for one in request(*messages).rounds()
    ]


@pytest.mark.parametrize(
    ("ids", "results", "found"),
    [
        (["a"], [("a", "1")], ["1"]),
        (["a", "b"], [("b", "2"), ("a", "1")], ["1", "2"]),
        (["a", "b"], [("a", "1")], ["1", "?"]),
        (["a", "a"], [("a", "1"), ("a", "2")], ["1", "2"]),
        (["a", "b", "a"], [("a", "1"), ("a", "3"), ("b", "2")], ["1", "2", "3"]),
        (["", ""], [("", "1"), ("", "2")], ["1", "2"]),
        (["", ""], [("x", "1"), ("y", "2")], ["1", "2"]),
        (["a", "b"], [(None, "1"), (None, "2")], ["1", "2"]),
        ([""], [("x", "1")], ["1"]),
        (["a"], [("", "1")], ["1"]),
        (["a"], [("other", "1")], ["?"]),
        (["a", "b"], [("other", "1"), ("b", "2")], ["?", "2"]),
        (["a"], [], ["?"]),
    ],
)
def test_results_pair_with_calls(ids: list[str], results: list[tuple[str, str]], found: list[str]) -> None:
    """By id, and by order where ids repeat or lack."""
    assert outcomes(user(), calls(*ids), *(result(id_, text) for id_, text in results)) == [found, None]


def test_results_belong_to_their_round() -> None:
    """Though ids begin anew in each."""
    talk = [user(), calls("0"), result("0", "one"), calls("0"), result("0", "two"), user("On."), calls("0")]
    assert outcomes(*talk) == [["?"], None, ["two"], ["one"], None]


@pytest.mark.parametrize(
    "between",
    [
        {"role": "system", "content": "x"},
        {"role": "developer", "content": "x"},
        {"role": "assistant", "content": "[callfuse] Stopped."},
        user("[callfuse] Think again."),
        user("<system-reminder>Be brief.</system-reminder>"),
        user([{"type": "text", "text": "  <environment_details>..."}]),
        user([{"type": "text", "text": "<system-reminder>a"}, {"type": "text", "text": "[callfuse] b"}]),
        user("Validation feedback:\nPlease include your response in a tool call.\n\nFix the errors and try again."),
        user([{"type": "image_url", "image_url": {"url": "x"}}]),
        "a string",
        None,
    ],
)
def test_what_starts_no_timeline(between: Any) -> None:
    """Own texts, reminders, a harness's retry, the images of a tool, and everything that no user says."""
    talk = [user(), calls("a"), result("a", "1"), between, calls("b"), result("b", "2")]
    assert outcomes(*talk) == [["2"], ["1"], None]
    assert request(*talk).last_user_message()[0] == 0


@pytest.mark.parametrize(
    "between",
    [
        user("Go on."),
        user([{"type": "text", "text": "Go on."}]),
        user([{"type": "text", "text": "<system-reminder>a"}, {"type": "text", "text": "Go on."}]),
        user([{"type": "text", "text": "Like this:"}, {"type": "image_url", "image_url": {"url": "x"}}]),
        user(""),
    ],
)
def test_what_starts_one(between: Any) -> None:
    """Whatever a person has said or shown."""
    talk = [user(), calls("a"), result("a", "1"), between, calls("b"), result("b", "2")]
    assert outcomes(*talk) == [["2"], None, ["1"], None]
    assert request(*talk).last_user_message()[0] == 3


def test_images_of_a_tool_are_its_result() -> None:
    """A tool message cannot hold them, so clients send them in a user message behind it."""
    screens = [user([{"type": "image_url", "image_url": {"url": url}}]) for url in ("1", "2", "2")]
    talk = [one for screen in screens for one in (calls("a"), result("a", "see below"), screen)]
    found = [one.calls[0].outcome for one in request(user(), *talk).rounds() if one]
    assert [one.digest == found[0].digest for one in found if one and found[0]] == [True, True, False]


def test_an_image_of_the_user_starts_a_timeline() -> None:
    """Where no tool has just answered."""
    talk = [user(), {"role": "assistant", "content": "Show me."}, user([{"type": "image_url"}]), calls("a")]
    assert request(*talk).last_user_message()[0] == 2


def test_legacy_rounds() -> None:
    """`function_call` and messages of the role `function`."""
    turn = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert outcomes(user(), turn, {"role": "function", "name": "f", "content": "1"}) == [["1"], None]


@pytest.mark.parametrize(
    ("more", "probe"),
    [
        ({}, False),
        ({"max_tokens": 1}, True),
        ({"max_completion_tokens": 1}, True),
        ({"max_tokens": 16}, False),
        ({"tools": None}, True),
        ({"tools": []}, True),
        ({"tools": None, "functions": [{"name": "f"}]}, False),
    ],
)
def test_probes(more: dict[str, Any], probe: bool) -> None:
    """One token, or no tools."""
    assert request(user(), **more).probe is probe


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([user()], [user(), calls("a"), user("On.")], True),
        ([user()], [user("Find that.")], False),
        ([user()], [{"role": "system", "content": "s"}, user()], False),
        ([user()], [user([{"type": "text", "text": "Find it."}])], True),
        ([{"role": "system", "content": "s"}, user()], [{"role": "developer", "content": "s"}, user()], False),
    ],
)
def test_the_opening_tells_conversations_apart(one: list[Any], other: list[Any], same: bool) -> None:
    """System prompt and first user message, in whatever shape, and nothing behind them."""
    assert (list(request(*one).opening()) == list(request(*other).opening())) is same


def call(position: int, of: Request, place: int = 0) -> ToolCall:
    """A call of the round at this position."""
    return next(one for one in of.rounds() if one is not None and one.position == position).calls[place].call


OWN = "[callfuse] Again?"


@pytest.mark.parametrize(
    ("content", "noted"),
    [
        ("x", f"x\n\n{OWN}"),
        ("", OWN),
        (None, OWN),
        ('a\\n"é\u2028', f'a\\n"é\u2028\n\n{OWN}'),
        ([{"type": "text", "text": "x"}], [{"type": "text", "text": f"x\n\n{OWN}"}]),
        (
            [{"type": "text", "text": "x"}, {"type": "image_url"}, {"type": "text", "text": "y"}],
            [{"type": "text", "text": "x"}, {"type": "image_url"}, {"type": "text", "text": f"y\n\n{OWN}"}],
        ),
        ([{"type": "image_url"}], [{"type": "image_url"}, {"type": "text", "text": OWN}]),
        ([], [{"type": "text", "text": OWN}]),
        (["x"], [f"x\n\n{OWN}"]),
        ({"a": 1}, {"a": 1, "callfuse": OWN}),
        ({}, {"callfuse": OWN}),
        (5, 5),
        (True, True),
    ],
)
def test_a_text_in_a_result_of_any_shape(content: Any, noted: Any) -> None:
    """In its last text, as a new part, as a key; what can hold none stays. Every other byte too."""
    raw = body(user(), calls("a"), result("a", content))
    asked = request(raw=raw)
    made = asked.with_notes([Note(1, call(1, asked), OWN)])
    expected = json.loads(raw)
    expected["messages"][2]["content"] = noted
    assert json.loads(made) == expected
    assert made.startswith(raw[: raw.index(b'"tool_call_id"')])
    assert b'"seed" : 12345678901234567890123 , "temperature":1.0' in made


def test_a_missing_content_is_added() -> None:
    """As a text."""
    asked = request(user(), calls("a"), {"role": "tool", "tool_call_id": "a"})
    made = asked.with_notes([Note(1, call(1, asked), OWN)])
    assert json.loads(made)["messages"][2]["content"] == OWN


def test_texts_find_their_result() -> None:
    """Among several, by id and order; two texts for one result follow each other; no notes leave the very bytes."""
    talk = [user(), calls("a", "b", "b"), result("b", "2"), result("b", "3"), result("a", "1")]
    asked = request(*talk)
    notes = [Note(1, call(1, asked, 2), "[callfuse] A."), Note(1, call(1, asked, 2), "[callfuse] B.")]
    found = [turn["content"] for turn in json.loads(asked.with_notes(notes))["messages"][2:]]
    assert found == ["2", "3\n\n[callfuse] A.\n\n[callfuse] B.", "1"]
    assert asked.with_notes([]) == asked.body


TURN = b'{"role":"assistant","content":null,"tool_calls":[{"id":"z","n":1.0}]}'
REPLY = Reply(ToolCall("z", "f", "{}"), "[callfuse] Not run.")


def again(**more: Any) -> tuple[bytes, dict[str, Any]]:
    """The body with which the model is asked again, and what it reads as."""
    asked = request(user(), **more)
    made = asked.ask_again([Attempt(TURN, [REPLY])], AskOptions())
    return made, json.loads(made)


def test_asking_again_adds_turn_and_replies() -> None:
    """The model's turn byte for byte, then a result for each of its calls; nothing else changes."""
    raw = body(user())
    made, found = again()
    turn = TURN.replace(b'"content":null,', b"")
    assert turn in made
    assert found["messages"][1:] == [json.loads(turn), {"role": "tool", "tool_call_id": "z", "content": REPLY.text}]
    assert {key: value for key, value in found.items() if key != "messages"} == {
        key: value for key, value in json.loads(raw).items() if key != "messages"
    }
    assert b'"seed" : 12345678901234567890123 , "temperature":1.0' in made


CALLED = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
LEGACY = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
NOTHING_SAID: list[dict[str, Any]] = [{}, {"content": None}, {"content": ""}, {"content": []}]


@pytest.mark.parametrize("turn", [TURN, TURN.replace(b"null", b'""'), TURN.replace(b"null", b"[]")])
@pytest.mark.parametrize("spelled", NOTHING_SAID, ids=str)
@pytest.mark.parametrize("called", [CALLED, LEGACY], ids=["calls", "legacy"])
def test_an_empty_content_is_spelled_as_the_client_does(
    turn: bytes, spelled: dict[str, Any], called: dict[str, Any]
) -> None:
    """As in its newest turn with calls and without a text: some servers refuse null, others that it lacks."""
    said = {**called, "content": "Let me see."}
    asked = request(user(), {**called, "content": "x"}, {**called, **spelled}, said, {"role": "assistant"}, user())
    made = json.loads(asked.ask_again([Attempt(turn, [REPLY])], AskOptions()))["messages"][-2]
    assert {key: value for key, value in made.items() if key == "content"} == spelled


def test_a_content_that_says_something_stays() -> None:
    """And one that lacks is not added."""
    for content in (b'"content":"x",', b'"content":[{"type":"text","text":"x"}],', b""):
        turn = TURN.replace(b'"content":null,', content)
        assert turn in request(user(), {**CALLED, "content": None}).ask_again([Attempt(turn, [REPLY])], AskOptions())


@pytest.mark.parametrize(
    ("turn", "role"),
    [
        (b'{"role":"assistant","function_call" : {"name":"f","arguments":"{}"}}', "function"),
        (b'{"role":"assistant","function\\u005fcall":{"name":"f","arguments":"{}"}}', "function"),
        (b'{"role":"assistant","tool_calls" :[{"id":"z"}],"x":{"function_call":1}}', "tool"),
    ],
)
def test_the_form_of_a_call_is_read_however_it_is_spelled(turn: bytes, role: str) -> None:
    """The reply has the role that goes with it."""
    made = json.loads(request(user()).ask_again([Attempt(turn, [REPLY])], AskOptions()))
    assert made["messages"][-1]["role"] == role


@pytest.mark.parametrize(
    ("choice", "tools", "loosened"),
    [
        ("auto", 2, "auto"),
        ("none", 2, "none"),
        ("required", 2, "required"),
        ("required", 1, "auto"),
        ({"type": "function", "function": {"name": "f"}}, 2, "auto"),
        ({"type": "custom", "custom": {"name": "f"}}, 2, "auto"),
        ({"type": "allowed_tools", "allowed_tools": {}}, 2, {"type": "allowed_tools", "allowed_tools": {}}),
        (None, 2, None),
    ],
)
def test_a_forced_choice_is_loosened(choice: Any, tools: int, loosened: Any) -> None:
    """One named tool becomes `auto`; `required` stays while another tool is open."""
    _, found = again(tool_choice=choice, tools=[TOOL] * tools)
    assert found["tool_choice"] == loosened


def test_a_forced_legacy_choice_is_loosened() -> None:
    """`function_call` names one function."""
    _, found = again(function_call={"name": "f"}, functions=[{"name": "f"}])
    assert found["function_call"] == "auto"


def test_asking_a_third_time() -> None:
    """Both turns and both replies stand in order."""
    asked = request(user(), tool_choice="required", tools=[TOOL])
    other = Attempt(TURN.replace(b'"z"', b'"y"'), [Reply(ToolCall("y", "f", "{}"), "t")])
    twice = json.loads(asked.ask_again([Attempt(TURN, [REPLY]), other], AskOptions()))
    assert [turn.get("tool_call_id") for turn in twice["messages"]] == [None, None, "z", None, "y"]
    assert twice["tool_choice"] == "auto"
