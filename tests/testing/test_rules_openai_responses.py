"""Each rule of OpenAI Responses, by a body that breaks it and one that keeps it; and the vendor that plays them."""

from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.testing import Answer, Call, VendorRequest, looping_model, served
from callfuse.testing.openai_responses import OpenAIResponsesVendor
from callfuse.testing.turn import signature_for
from callfuse.testing.vendor import Memory
from tests.support.examples import more_examples
from tests.support.rules import StrictVendor, violations

CALL = {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
TOOL: Any = {"type": "function", "name": "search", "parameters": {}}
USER = {"role": "user", "content": "Go."}


def broken(*items: Any, **more: Any) -> list[str]:
    """What is wrong with a request of these items."""
    return violations("openai-responses", {"model": "m", "input": list(items), **more})


@pytest.mark.parametrize(
    "items",
    [
        [USER],
        [USER, CALL, RESULT],
        [USER, CALL, USER, RESULT],
        [{"role": "developer", "content": [{"type": "input_text", "text": "x"}]}, USER],
        [USER, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
        [USER, {"type": "item_reference", "id": "msg_scripted_1_0"}],
        [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}],
        [
            USER,
            {"id": "rs_scripted_1_0", "type": "reasoning", "summary": []},
            CALL | {"id": "fc_scripted_1_1_r0"},
            RESULT,
        ],
    ],
)
def test_a_good_history_breaks_nothing(items: list[Any]) -> None:
    """What clients really send."""
    assert broken(*items) == []


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "non-empty"),
        (["x"], "an object"),
        ([USER, CALL], "No tool output found for function call call_1"),
        ([USER, RESULT], "No tool call found for function call output with call_id call_1"),
        ([USER, CALL, RESULT, RESULT], "twice"),
        ([USER, CALL | {"type": "custom_tool_call", "input": ""}, RESULT], "No tool output found"),
        ([USER, CALL | {"call_id": ""}, RESULT], "call_id"),
        ([USER, CALL | {"arguments": {}}, RESULT], "arguments"),
        ([USER, CALL, RESULT | {"output": [{"type": "text", "text": "x"}]}], "output[0].type"),
        ([{"role": "tool", "content": "x"}], "role"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], "output_text"),
        ([{"role": "user", "content": 7}], "a string or an array"),
        ([{"role": "assistant", "content": "x", "id": "fc_1"}], "does not begin with 'msg'"),
        ([{"role": "assistant", "content": "x", "id": "msg_callfuse_1"}], "not found"),
        ([{"type": "item_reference", "id": "msg_callfuse_1"}], "not found"),
        ([USER, {"id": "rs_scripted_1_0", "type": "reasoning", "summary": []}], "required following item"),
        ([USER, CALL | {"id": "fc_scripted_1_1_r0"}, RESULT], "required 'reasoning' item: 'rs_scripted_1_0'"),
        ([USER, {"id": "rs_1", "type": "reasoning"}], "summary"),
        (
            [USER, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": signature_for("r", "x")}],
            "does not belong",
        ),
    ],
)
def test_a_broken_history_is_told(items: list[Any], said: str) -> None:
    """With the place in the body."""
    found = broken(*items)
    assert any(said in sentence for sentence in found), found


def test_without_a_store() -> None:
    """Nothing is known by its id: reasoning must bring its content, references mean nothing, any id goes."""
    bare = {"id": "rs_scripted_1_0", "type": "reasoning", "summary": []}
    assert "not persisted" in broken(USER, bare, store=False)[0]
    assert broken(USER, bare | {"encrypted_content": "x"}, store=False) == []
    assert "not found" in broken(USER, {"type": "item_reference", "id": "msg_scripted_1_0"}, store=False)[0]
    assert broken(USER, {"role": "assistant", "content": "x", "id": "msg_callfuse_1"}, store=False) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": ""}, "model"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "not in 'tools'"),
        ({"previous_response_id": "a", "conversation": "b"}, "previous_response_id"),
    ],
)
def test_settings(more: dict[str, Any], said: str) -> None:
    """Choices fit the tools, and a place in the vendor's memory has one name."""
    assert any(said in sentence for sentence in broken(USER, **more))
    assert broken(USER, tools=[TOOL], tool_choice={"type": "function", "name": "search"}) == []


KEYS = st.sampled_from(
    ["type", "id", "call_id", "role", "content", "input", "output", "summary", "tools", "name", "store"]
)
WORDS = st.sampled_from(
    ["function_call", "function_call_output", "reasoning", "message", "user", "item_reference", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@more_examples(5)
@given(body=st.fixed_dictionaries({"input": JSON}, optional={"tools": JSON, "tool_choice": JSON, "conversation": JSON}))
def test_total(body: dict[str, Any]) -> None:
    """Whatever the JSON, it is judged, recalled and read without an error."""
    assert all(violations("openai-responses", body))
    calls, results = OpenAIResponsesVendor().last_round(Memory().recall(body) or body)
    assert results or not calls


def script(request: VendorRequest) -> Answer:
    """Calls once, then answers with what came back."""
    if request.results:
        return Answer(f"It said {request.results[0]}.", thinking="So.")
    return Answer("Let me see.", (Call("search", {"q": "x"}),), thinking="Hm.")


@pytest.mark.parametrize("stream", [True, False])
def test_the_vendor_by_the_sdk(stream: bool) -> None:
    """Items, ids and usage come as the SDK reads them; a chain is known by the id of its last answer."""
    vendor = StrictVendor(script)
    with served(vendor) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        def ask(**asked: Any) -> Any:
            if not stream:
                return client.responses.create(model="m", tools=[TOOL], **asked)
            with client.responses.stream(model="m", tools=[TOOL], **asked) as reading:
                return reading.get_final_response()

        first = ask(input="Go.")
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
        result = {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "llamas"}
        second = ask(input=[result], previous_response_id=first.id)
        assert second.output_text == "It said llamas."
        assert second.previous_response_id == first.id
        third = ask(input=[{"role": "user", "content": "Go."}, *first.output, result])
        assert third.output_text == second.output_text
        assert third.usage.total_tokens == third.usage.input_tokens + third.usage.output_tokens > 0
        with pytest.raises(openai.BadRequestError, match="No tool output found for function call"):
            ask(input="And?", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            ask(input="And?", previous_response_id="resp_of_another")


def test_a_looping_model_loops() -> None:
    """The scripted loop is one in this dialect too."""
    vendor = StrictVendor(looping_model())
    with served(vendor) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        history: list[Any] = [USER]
        for _ in range(3):
            response = client.responses.create(model="m", tools=[TOOL], input=history, store=False)
            call: Any = response.output[0]
            history += [call, RESULT | {"call_id": call.call_id}]
    assert len({request.calls[0].text for request in vendor.requests[1:]}) == 1
