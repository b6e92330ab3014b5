"""Gemini's Interactions: forms of the input, tools that Google runs, turns, chains, what has no answer yet."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay, Reply
from callfuse.dialects.base import Request
from callfuse.dialects.interactions import Interactions
from callfuse.model import ToolCall
from tests.support.asgi import JSON_REQUEST
from tests.support.asgi import Request as Asked
from tests.support.meeting import MARK, Session, in_session, meet
from tests.support.scripted import Reply as Script
from tests.support.scripted import whole

DIALECT = Interactions()
PATH = "/v1beta/interactions"
SIGNED = (*JSON_REQUEST[:2], (b"content-digest", b"sha-256=:x:"))
QUERY = {"q": "zebra", "id": 123456789012345678901234567890}
TOOLS = [{"type": "function", "name": "search", "parameters": {}}]


def call(id_: str = "c9", **more: Any) -> dict[str, Any]:
    """The call that comes again and again."""
    return {"type": "function_call", "id": id_, "name": "search", "arguments": QUERY, **more}


def result(id_: str, said: Any = "nothing", **more: Any) -> dict[str, Any]:
    """What came of it."""
    return {"type": "function_result", "call_id": id_, "name": "search", "result": said, **more}


def user(text: str = "Go.") -> dict[str, Any]:
    """A step of the user's."""
    return {"type": "user_input", "content": [{"type": "text", "text": text}]}


def spun(times: int = 2, **more: Any) -> list[Any]:
    """The same call so many times."""
    return [user(), *(step for at in range(times) for step in (call(f"c{at}"), result(f"c{at}", **more)))]


def ask(spoken: Any, **more: Any) -> Asked:
    """A request."""
    headers = more.pop("headers", JSON_REQUEST)
    body = {"model": "gemini-3", "input": spoken, "tools": TOOLS, "store": False} | more
    return Asked(PATH, json.dumps(body).encode(), headers)


def read(spoken: Any, **more: Any) -> Request:
    """A request as the dialect reads it."""
    body = ask(spoken, **more).body
    found = DIALECT.read_request(body, json.loads(body), PATH)
    assert found is not None
    return found


def answer(*steps: dict[str, Any], id_: str = "v1_a", status: str = "requires_action") -> Script:
    """A whole answer."""
    return whole(json.dumps({"id": id_, "object": "interaction", "status": status, "steps": list(steps)}).encode())


@pytest.mark.parametrize(
    ("path", "served"),
    [
        ("/v1beta/interactions", True),
        ("/proxy/v1/interactions/", True),
        ("/v1beta1/projects/p/locations/global/interactions", True),
        ("/v1beta/interactions/v1_abc", False),
        ("/v1beta/interactions/v1_abc/cancel", False),
        ("/interactions", False),
    ],
)
def test_paths(path: str, *, served: bool) -> None:
    """Under any prefix and version; stored ones are no exchanges."""
    assert DIALECT.serves(path) is served


@pytest.mark.parametrize("spoken", ["Go.", [{"type": "text", "text": "Go."}], [user()]])
def test_forms_of_the_input(spoken: Any) -> None:
    """A text, contents or steps: one message of a person, with the same opening; asked again, all are steps."""
    request = read(spoken)
    assert list(request.opening()) == [b"Go."]
    assert request.length == 1
    assert request.last_user_message()[0] == 0
    typed = request.typed_message(0)
    assert typed is not None
    assert [one.text for one in typed.texts] == ["Go."]
    turn = DIALECT.model_turn_of_whole(answer(call()).body, json.loads(answer(call()).body))
    again = json.loads(request.ask_again([Attempt(turn, [Reply(ToolCall("c9", "search", "{}"), "No.")])], AskOptions()))
    said, *rest = again["input"]
    assert said["type"] == "user_input"
    assert said["content"] in ("Go.", [{"type": "text", "text": "Go."}])
    assert rest == [call(), result("c9", "No.", is_error=True)]


@pytest.mark.parametrize("more", [{"background": True}, {"input": {"type": "text", "text": "Go."}}, {"input": None}])
def test_what_is_not_read(more: dict[str, Any]) -> None:
    """What is polled for has no answer; a single content is nobody's list."""
    body = json.loads(ask("Go.").body) | more
    assert DIALECT.read_request(json.dumps(body).encode(), body, PATH) is None


def test_a_probe() -> None:
    """Without tools, or for one token; not in a chain, which may have tools."""
    assert not read("Go.").probe
    assert read("Go.", tools=[]).probe
    assert read("Go.", generation_config={"max_output_tokens": 1}).probe
    assert not read("Go.", tools=[], previous_interaction_id="v1_x").probe


@pytest.mark.parametrize("said", ["nothing", [{"type": "text", "text": "nothing"}], {"found": 0}])
def test_a_warning_stands_in_the_result(said: Any) -> None:
    """In a text, in the last text, under a key of its own; nothing else changes."""
    request = ask(spun(3, said=said))
    met = meet(request, [answer({"type": "model_output", "content": []}, status="completed")], "warn")
    sent, before = json.loads(met.app.heard[0].body), json.loads(request.body)
    assert MARK in json.dumps(sent["input"][-1]["result"])
    assert sent["input"][:-1] == before["input"][:-1]


def test_errors_and_digits() -> None:
    """A flag makes a result an error, and arguments keep every digit."""
    newest, *_ = read(spun(1, is_error=True)).rounds()
    assert newest is not None
    (past,) = newest.calls
    assert past.outcome is not None
    assert past.outcome.kind.value == "error"
    assert "123456789012345678901234567890" in past.call.text


def test_googles_own_tools() -> None:
    """They have run already. While one waits for its result, a call beside it is not blocked."""
    ran = {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["zebra"]}}
    found = {"type": "google_search_result", "call_id": "g1", "result": []}
    for steps in ((ran, found), (ran, call())):
        script = answer(*steps)
        assert meet(ask(spun()), [script]).body == script.body
    met = meet(ask(spun()), [answer(ran, found, call())])
    kinds = [step["type"] for step in json.loads(met.body)["steps"]]
    assert kinds == ["google_search_call", "google_search_result", "model_output"]
    assert json.loads(met.body)["status"] == "completed"


def events(*steps: tuple[dict[str, Any], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The events of a stream."""
    found: list[dict[str, Any]] = [{"event_type": "interaction.created", "interaction": {"id": "v1_a"}}]
    for at, (step, deltas) in enumerate(steps):
        found.append({"event_type": "step.start", "index": at, "step": step})
        found += [{"event_type": "step.delta", "index": at, "delta": delta} for delta in deltas]
        found.append({"event_type": "step.stop", "index": at})
    return [*found, {"event_type": "interaction.completed", "interaction": {"id": "v1_a", "status": "requires_action"}}]


def test_the_turn_of_a_stream() -> None:
    """Thoughts with signatures, texts, what Google's tools did, calls with every digit; not where texts are from."""
    searched = {"type": "google_search_call", "arguments": {"queries": ["zebra"]}}
    begun = {"type": "function_call", "id": "c9", "name": "search", "signature": "c2ln", "arguments": {}}
    turn = DIALECT.model_turn(
        events(
            ({"type": "thought"}, [{"type": "thought_signature", "signature": "c2ln"}]),
            ({"type": "model_output"}, [{"type": "text", "text": "On"}, {"type": "text", "text": "e."},
                                        {"type": "text_annotation_delta", "annotations": []}]),
            ({"type": "google_search_call", "id": "g1"}, [searched]),
            (begun, [{"type": "arguments_delta", "arguments": json.dumps(QUERY)}]),
            ({"type": "function_call", "id": "c10"}, []),
        )
    )  # fmt: skip
    assert json.loads(turn) == {
        "id": "v1_a",
        "steps": [
            {"type": "thought", "signature": "c2ln"},
            {"type": "model_output", "content": [{"type": "text", "text": "One."}]},
            {"id": "g1", **searched},
            {**begun, "arguments": QUERY},
        ],
    }
    assert b"123456789012345678901234567890" in turn


@pytest.mark.parametrize("delta", [{"type": "image", "data": "x"}, {"type": "arguments_delta", "arguments": "[1]"}])
def test_a_turn_that_cannot_be_rebuilt(delta: dict[str, Any]) -> None:
    """A delta that nobody knows, arguments that are no object."""
    with pytest.raises(CannotReplay):
        DIALECT.model_turn(events((call(), [delta])))


def allowed(mode: str, *tools: str) -> dict[str, Any]:
    """A choice of these tools."""
    return {"allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("any", "auto"),
        ("none", "none"),
        (
            {"allowed_tools": {"mode": "any", "tools": ["search"]}},
            {"allowed_tools": {"mode": "auto", "tools": ["search"]}},
        ),
        (
            {"allowed_tools": {"mode": "any", "tools": ["a", "b"]}},
            {"allowed_tools": {"mode": "any", "tools": ["a", "b"]}},
        ),
    ],
)
def test_a_choice_of_one_tool_is_loosened(choice: Any, wanted: Any) -> None:
    """Which would force the loop."""
    asked = ask(spun(), generation_config={"tool_choice": choice})
    met = meet(asked, [answer(call()), answer({"type": "model_output"}, status="completed")], "chance_then_block")
    assert json.loads(met.app.heard[1].body)["generation_config"]["tool_choice"] == wanted


def test_a_chain_is_gone_on_with() -> None:
    """The steer sends results alone; the next request goes on from its answer, and one after a block has the result
    of the call that the client never saw, before what is new."""

    async def talk(session: Session) -> None:
        place: dict[str, Any] = {"store": True}
        new: Any = "Go."
        for at in range(2):
            await session.exchange(ask(new, **place), answer(call(f"c{at}"), id_=f"v1_{at}"))
            new, place = [result(f"c{at}")], {"store": True, "previous_interaction_id": f"v1_{at}"}
        await session.exchange(ask(new, **place), answer(call("c2"), id_="v1_2"), answer(call("c3"), id_="v1_3"))
        place = {"store": True, "previous_interaction_id": "v1_2"}
        await session.exchange(ask("And?", **place), answer({"type": "model_output"}, id_="v1_4", status="completed"))

    *_, blocked, last = in_session(talk, "chance_then_block").meetings
    again = json.loads(blocked.app.heard[1].body)
    assert again["previous_interaction_id"] == "v1_2"
    assert [step["call_id"] for step in again["input"]] == ["c2"]
    assert json.loads(blocked.body)["id"] == "v1_2"
    assert json.loads(blocked.body)["status"] == "completed"
    sent = json.loads(last.app.heard[0].body)
    assert sent["previous_interaction_id"] == "v1_3"
    first, second = sent["input"]
    assert (first["type"], first["call_id"]) == ("function_result", "c3")
    assert second == {"type": "user_input", "content": "And?"}


def test_a_signed_chain_is_counted() -> None:
    """Its requests could not be put right: they are observed only."""
    script = answer(call())
    met = meet(ask(spun(), store=True, headers=SIGNED), [script])
    assert met.body == script.body


def test_an_answer_of_the_revision_before() -> None:
    """It has other keys, and passes."""
    script = whole(json.dumps({"id": "x", "outputs": [call()], "status": "requires_action"}).encode())
    assert meet(ask(spun()), [script]).body == script.body


def test_details_of_tokens_are_summed_by_modality() -> None:
    """Of what the model wrote; the input is the last answer's."""

    def whole_with(tokens: int) -> bytes:
        details = [{"modality": "text", "tokens": tokens}, {"modality": "audio", "tokens": 1}]
        counts = {"total_input_tokens": tokens, "total_output_tokens": tokens, "total_tokens": 2 * tokens}
        by_modality = {"input_tokens_by_modality": details, "output_tokens_by_modality": details}
        return json.dumps({"id": "v1_a", "steps": [], "usage": counts | by_modality}).encode()

    made = read([user()]).writer(usage="last").splice_whole(whole_with(10), whole_with(20), foreign=False)
    usage = json.loads(made)["usage"]
    assert (usage["total_input_tokens"], usage["total_output_tokens"], usage["total_tokens"]) == (20, 30, 50)
    assert usage["input_tokens_by_modality"] == [{"modality": "text", "tokens": 20}, {"modality": "audio", "tokens": 1}]
    assert usage["output_tokens_by_modality"] == [
        {"modality": "text", "tokens": 30},
        {"modality": "audio", "tokens": 2},
    ]
