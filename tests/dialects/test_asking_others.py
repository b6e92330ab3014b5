"""How each dialect asks another model, or for text alone: which parts of a request go, which change, which stay."""

import json
from typing import Any

import pytest

from callfuse.dialects import dialect_of
from callfuse.dialects.addresses import model_in, path_to
from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay, Reply
from callfuse.dialects.base import Request
from callfuse.model import ToolCall

OTHER = "other-model"
TEXT_ONLY, OTHERS = AskOptions(text_only=True), AskOptions(model=OTHER)
REPLY = Reply(ToolCall("c9", "f", "{}"), "[callfuse] Not run.")
STAND_IN = "skip_thought_signature_validator"
HELLO = {"role": "user", "content": "Find it."}


def request(path: str, **body: Any) -> Request:
    """A request as its dialect reads it; digits and spaces in it would show a rewrite."""
    dialect = dialect_of(path)
    assert dialect is not None
    text = json.dumps(body | {"metadata": {"n": 12345678901234567890123}}, indent=1).encode()
    found = dialect.read_request(text, json.loads(text), path)
    assert found is not None
    return found


def asked(found: Request, options: AskOptions, *turns: Any, model: str = "") -> Any:
    """The request after an attempt of the client's model (or of `model`) with each of these turns."""
    attempts = [Attempt(json.dumps(turn).encode(), [REPLY], model) for turn in turns]
    made = found.ask_again(attempts, options)
    assert b"12345678901234567890123" in made
    return json.loads(made)


def chat(*messages: Any, **more: Any) -> Request:
    """A chat completion."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    return request("/v1/chat/completions", **({"model": "m", "messages": [HELLO, *messages], "tools": tools} | more))


def chat_call(id_: str = "c9", **more: Any) -> dict[str, Any]:
    """A call in it."""
    return {"id": id_, "type": "function", "function": {"name": "f", "arguments": "{}"}, **more}


SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}, "x": 1}}
THOUGHTFUL = {
    "reasoning_content": "hm",
    "reasoning": "hm",
    "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
    "thinking_blocks": [{"type": "thinking"}],
}


def test_openai_chat_reasoning() -> None:
    """In its four spellings and as parts of the content; texts, calls and other keys stay."""
    said = {"role": "assistant", "content": "So.", **THOUGHTFUL, "tool_calls": [chat_call("c1")], "refusal": None}
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "So."}]
    spoken, silent = {"role": "assistant", "content": parts}, {"role": "assistant", "content": parts[:1]}
    users = {"role": "user", "content": "Go on.", "reasoning": "typed by a user"}
    made = asked(chat(said, spoken, silent | {"tool_calls": [chat_call("c2")]}, users), OTHERS, said)
    bare = {"role": "assistant", "content": "So.", "tool_calls": [chat_call("c1")], "refusal": None}
    told = {"role": "tool", "tool_call_id": "c9", "content": REPLY.text}
    assert made["messages"][1:] == [
        bare,
        {"role": "assistant", "content": parts[1:]},
        {"role": "assistant", "content": None, "tool_calls": [chat_call("c2")]},
        users,
        bare,
        told,
    ]
    assert made["model"] == OTHER


@pytest.mark.parametrize(
    ("model", "where"), [("alias", ["c1"]), ("google/gemini-3-pro", ["c1", "c3"]), ("gemini-2.5", [])]
)
def test_openai_chat_signatures(model: str, where: list[str]) -> None:
    """They hold for one model: another one that may want one gets the stand-in on each first call, and no other."""
    said = {"role": "assistant", "content": None, "tool_calls": [chat_call("c1", **SIGNED), chat_call("c2", **SIGNED)]}
    plain = {"role": "assistant", "content": None, "tool_calls": [chat_call("c3")]}
    made = asked(chat(said, plain), AskOptions(model=model), said)
    for call in (call for message in made["messages"] for call in message.get("tool_calls") or ()):
        signature = call.get("extra_content", {}).get("google", {}).get("thought_signature")
        assert signature == (STAND_IN if call["id"] in where else None)


def test_openai_chat_without_a_model() -> None:
    """Azure's clients may leave it out, for it stands in the path: it is named where it was."""
    assert asked(chat(model=None), OTHERS, chat_call())["model"] is None


@pytest.mark.parametrize(
    ("more", "shut"),
    [
        ({}, {"tool_choice": "none"}),
        ({"tool_choice": "required"}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tool_choice": "none"}),
        ({"tools": None, "functions": [{"name": "f"}], "function_call": {"name": "f"}}, {"function_call": "none"}),
    ],
)
def test_openai_chat_text_only(more: dict[str, Any], shut: dict[str, Any]) -> None:
    """Whatever was chosen, nothing may be called; the tools stay. What is asked after that is as the client had it."""
    found = chat(**more)
    turn = {"role": "assistant", "content": None, "tool_calls": [chat_call()]}
    made = asked(found, TEXT_ONLY, turn)
    assert {key: made[key] for key in ("tool_choice", "function_call") if key in made} == shut
    assert made.get("tools") == json.loads(found.body).get("tools")
    after = asked(found, AskOptions(), turn, turn)
    assert ("tool_choice" in after) is ("tool_choice" in more)
    assert after.get("tool_choice") != "none"


def messages(*said: Any, **more: Any) -> Request:
    """An Anthropic request."""
    head = {"model": "m", "max_tokens": 9000, "tools": [{"name": "f", "input_schema": {}}]}
    return request("/v1/messages", **(head | {"messages": [HELLO, *said]} | more))


THINKING = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "eA=="}]
USE = {"type": "tool_use", "id": "c9", "name": "f", "input": {}}


def test_anthropic_thinking() -> None:
    """Every block of it, wherever it stands, and a message that is nothing else; the last answer's too."""
    turn = {"role": "assistant", "content": [*THINKING, {"type": "text", "text": "So."}, USE]}
    empty = {"role": "assistant", "content": THINKING}
    made = asked(messages(turn, empty, {"role": "assistant", "content": "plain"}), OTHERS, turn)
    bare = {"role": "assistant", "content": turn["content"][2:]}
    assert made["messages"][1:4] == [bare, {"role": "assistant", "content": "plain"}, bare]
    assert made["messages"][4]["content"][0]["tool_use_id"] == "c9"
    assert (made["model"], len(made["messages"])) == (OTHER, 5)


def test_anthropic_thinking_is_turned_off_where_it_would_be_demanded() -> None:
    """With a budget the vendor wants thinking at the loop's begin; what clears it goes as well. Adaptive stays."""
    clearing, other = {"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}
    enabled = {"type": "enabled", "budget_tokens": 1024}
    more = {"thinking": enabled, "context_management": {"edits": [clearing, other]}}
    turn = {"role": "assistant", "content": [USE]}
    made = asked(messages(**more), OTHERS, turn)
    assert "thinking" not in made
    assert made["context_management"] == {"edits": [other]}
    kept = asked(messages(**more), TEXT_ONLY, turn)
    assert {key: kept[key] for key in more} == more
    assert asked(messages(thinking={"type": "adaptive"}), OTHERS, turn)["thinking"] == {"type": "adaptive"}


def test_anthropic_in_the_cloud() -> None:
    """Where the model stands in the path, Vertex takes none in the body."""
    path = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-a:streamRawPredict"
    found = request(
        path, anthropic_version="vertex-2023-10-16", max_tokens=100, messages=[HELLO], tools=[{"name": "f"}]
    )
    assert "model" not in asked(found, OTHERS, {"role": "assistant", "content": [USE]})


@pytest.mark.parametrize(
    "choice", [None, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "f"}]
)
def test_anthropic_text_only(choice: Any) -> None:
    """`none` has nothing but its type."""
    made = asked(
        messages(**({"tool_choice": choice} if choice else {})), TEXT_ONLY, {"role": "assistant", "content": [USE]}
    )
    assert made["tool_choice"] == {"type": "none"}
    assert made["tools"]


def responses(*items: Any, **more: Any) -> Request:
    """A Responses request."""
    return request("/v1/responses", **({"model": "m", "input": list(items), "tools": [{"type": "function"}]} | more))


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "c9", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c9", "output": REPLY.text}
MESSAGE = {"type": "message", "id": "msg_0", "role": "assistant", "content": []}
NAMELESS = {key: value for key, value in FUNCTION.items() if key != "id"}


def test_responses_reasoning() -> None:
    """The items behind it go without their ids, which the vendor would take with it only."""
    found = responses(MESSAGE, REASONING, FUNCTION, OUTPUT)
    made = asked(found, OTHERS, {"id": "resp_1", "output": [REASONING, FUNCTION]})
    assert made["input"] == [MESSAGE, NAMELESS, OUTPUT, NAMELESS, OUTPUT]
    assert made["model"] == OTHER
    own = asked(found, AskOptions(), {"id": "resp_1", "output": [REASONING, FUNCTION]})
    assert own["input"] == [MESSAGE, REASONING, FUNCTION, OUTPUT, REASONING, FUNCTION, OUTPUT]
    back = asked(found, AskOptions(), {"id": "resp_2", "output": [REASONING, FUNCTION]}, model=OTHER)
    assert back["input"] == [MESSAGE, REASONING, FUNCTION, OUTPUT, NAMELESS, OUTPUT]


def test_responses_reasoning_that_cannot_be_seen() -> None:
    """Items that are only named may be reasoning or need it; reasoning without its text is no bar to another model."""
    turn = {"id": "resp_1", "output": [REASONING | {"encrypted_content": None}, FUNCTION]}
    with pytest.raises(CannotReplay) as refused:
        asked(responses({"type": "item_reference", "id": "rs_1"}), OTHERS, turn)
    assert refused.value.part == "item_reference"
    unstored = responses(HELLO, store=False)
    with pytest.raises(CannotReplay):
        asked(unstored, TEXT_ONLY, turn)
    assert asked(unstored, OTHERS, turn)["input"] == [HELLO, NAMELESS, OUTPUT]


def test_responses_in_a_chain() -> None:
    """The vendor has all but the results; the other model goes on from the last answer."""
    found = responses(HELLO, previous_response_id="resp_0")
    turns = [{"id": f"resp_{at}", "output": [REASONING, FUNCTION]} for at in (1, 2)]
    made = asked(found, OTHERS, *turns)
    assert (made["model"], made["previous_response_id"], made["input"]) == (OTHER, "resp_2", [OUTPUT])


@pytest.mark.parametrize("choice", [None, "required", {"type": "allowed_tools", "mode": "required", "tools": [{}]}])
def test_responses_text_only(choice: Any) -> None:
    """A list of allowed tools goes as well; an input that is a text becomes a list."""
    found = responses(**({"tool_choice": choice} if choice else {}), input="Find it.")
    made = asked(found, TEXT_ONLY, {"id": "resp_1", "output": [FUNCTION]})
    assert made["tool_choice"] == "none"
    assert made["input"] == [HELLO, FUNCTION, OUTPUT]


GEMINI = "/v1beta/models/gemini-3-pro:generateContent"


def gemini(*contents: Any, **more: Any) -> Request:
    """A Gemini request."""
    said = [{"role": "user", "parts": [{"text": "Find it."}]}, *contents]
    return request(GEMINI, **({"contents": said, "tools": [{"functionDeclarations": [{"name": "f"}]}]} | more))


def part(name: str = "f", **more: Any) -> dict[str, Any]:
    """A function call."""
    return {"functionCall": {"name": name, "args": {}}, **more}


THOUGHTS = [{"text": "hm", "thought": True}, {"text": "", "thoughtSignature": "c2ln"}]


@pytest.mark.parametrize(
    ("model", "stands_in"), [("gemini-3-flash", True), ("alias", True), ("gemini-2.5-pro", False), ("gemma-3", False)]
)
def test_gemini_thoughts(model: str, stands_in: bool) -> None:
    """Thoughts and parts that are mere signatures go; a model that wants signatures gets one on each first call."""
    signed, snake = {"thoughtSignature": "c2ln"}, {"thought_signature": "c2ln"}
    turn = {"role": "model", "parts": [*THOUGHTS, {"text": "So.", **signed}, part(**signed), part("g", **signed)]}
    old = {"role": "model", "parts": [{"function_call": {"name": "f"}, **snake}]}
    made = asked(gemini(turn, old, {"role": "model", "parts": THOUGHTS}), AskOptions(model=model), turn)
    stood_in = {"thoughtSignature": STAND_IN} if stands_in else {}
    fit = {"role": "model", "parts": [{"text": "So."}, part(**stood_in), part("g")]}
    older = {"thought_signature": STAND_IN} if stands_in else {}
    assert made["contents"][1:4] == [fit, {"role": "model", "parts": [{"function_call": {"name": "f"}, **older}]}, fit]
    assert len(made["contents"]) == 5


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ({}, {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
            {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        ),
        (
            {"tool_config": {"retrieval_config": {}}},
            {"tool_config": {"retrieval_config": {}, "functionCallingConfig": {"mode": "NONE"}}},
        ),
        (
            {"tool_config": {"function_calling_config": {"mode": "AUTO"}}},
            {"tool_config": {"function_calling_config": {"mode": "NONE"}}},
        ),
    ],
)
def test_gemini_text_only(more: Any, config: Any) -> None:
    """The mode `NONE` takes no list of names; what else is configured stays."""
    made = asked(gemini(**more), TEXT_ONLY, {"role": "model", "parts": [part()]})
    assert {key: made[key] for key in ("toolConfig", "tool_config") if key in made} == config
    assert made["tools"]


@pytest.mark.parametrize("options", [TEXT_ONLY, OTHERS])
def test_gemini_caches(options: AskOptions) -> None:
    """What is cached is so for one model, and takes no other tool choice beside it."""
    with pytest.raises(CannotReplay) as refused:
        asked(gemini(cachedContent="cachedContents/1"), options, {"role": "model", "parts": [part()]})
    assert refused.value.part == "cachedContent"
    assert asked(gemini(cachedContent="cachedContents/1"), AskOptions(), {"role": "model", "parts": [part()]})


def test_ollama() -> None:
    """`thinking` goes; there is no tool choice, so that the tools go where only text is wanted."""
    said = {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [{"function": {"name": "f"}}]}
    tools = [{"type": "function", "function": {"name": "f"}}]
    found = request("/api/chat", model="m", messages=[HELLO, said], tools=tools)
    made = asked(found, OTHERS, said)
    bare = {key: value for key, value in said.items() if key != "thinking"}
    assert made["messages"][1:3] == [bare, bare]
    assert (made["model"], made["tools"]) == (OTHER, tools)
    assert "tools" not in asked(found, TEXT_ONLY, said)


def test_cohere() -> None:
    """Blocks of thinking go; the plan, which is a text, stays."""
    thinking, text = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "So."}
    said = {"role": "assistant", "tool_plan": "First.", "content": [thinking, text], "tool_calls": [chat_call()]}
    found = request("/v2/chat", model="m", messages=[HELLO, said], tools=[{}], tool_choice="REQUIRED")
    made = asked(found, OTHERS, said)
    assert made["messages"][1:3] == [said | {"content": [text]}] * 2
    assert asked(found, TEXT_ONLY, said)["tool_choice"] == "NONE"


CONVERSE = "/model/us.anthropic.claude-a/converse"


def test_bedrock() -> None:
    """Reasoning goes, and Claude's budget for it; Converse has no way to forbid tools."""
    reasons = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    use = {"toolUse": {"toolUseId": "c9", "name": "f", "input": {}}}
    said = {"role": "assistant", "content": [reasons, {"text": "So."}, use]}
    config = {"tools": [{"toolSpec": {"name": "f"}}]}
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5}
    user = {"role": "user", "content": [{"text": "Find it."}]}
    only = {"role": "assistant", "content": [reasons]}
    found = request(CONVERSE, messages=[user, said, only], toolConfig=config, additionalModelRequestFields=more)
    made = asked(found, OTHERS, said)
    bare = {"role": "assistant", "content": said["content"][1:]}
    assert made["messages"][1:3] == [bare, bare]
    assert made["additionalModelRequestFields"] == {"top_k": 5}
    assert made["toolConfig"] == config
    with pytest.raises(CannotReplay) as refused:
        asked(found, TEXT_ONLY, said)
    assert refused.value.part == "toolChoice"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/api/chat", "/api/chat"),
        ("/openai/deployments/gpt-a/chat/completions", "/openai/deployments/b/chat/completions"),
        ("/v1beta/models/gemini-a:streamGenerateContent", "/v1beta/models/b:streamGenerateContent"),
        ("/v1/projects/p/models/claude-a@1:rawPredict", "/v1/projects/p/models/b:rawPredict"),
        (
            "/v1/projects/p/publishers/mistralai/models/a@1:rawPredict/",
            "/v1/projects/p/publishers/mistralai/models/b:rawPredict/",
        ),
        ("/model/arn:aws:x:y/claude-a/converse", "/model/b/converse"),
        ("/model/claude-a%3A0/invoke-with-response-stream", "/model/b/invoke-with-response-stream"),
        ("/v1beta/tunedModels/a:generateContent", None),
        ("/v1/projects/p/endpoints/123:streamRawPredict", None),
    ],
)
def test_addresses(path: str, there: str | None) -> None:
    """Paths that name a model name the other; where the name's place is not known, there is no path."""
    assert path_to(path, "b") == there


@pytest.mark.parametrize(
    ("target", "model"),
    [
        ("/v1/chat/completions", ""),
        ("/openai/deployments/gpt-a/chat/completions?api-version=1", "gpt-a"),
        ("/v1beta/models/gemini-a:streamGenerateContent?alt=sse", "gemini-a"),
        ("/v1/projects/p/models/claude-a@1:rawPredict", "claude-a@1"),
        ("/model/arn:aws:x:y/claude-a/converse", "arn:aws:x:y/claude-a"),
        ("/model/anthropic.claude-v1:0/invoke/", "anthropic.claude-v1:0"),
        ("/v1/projects/p/endpoints/123:streamRawPredict", ""),
    ],
)
def test_models_in_paths(target: str, model: str) -> None:
    """The name of the model where the path has it, which settings and logs then know."""
    assert model_in(target) == model
