"""One conversation as each format records it: two user messages, a search three times in vain, two reads at once.

user       find it
assistant  search {"q": "x"}                -> "nothing found"   three times
user       go on
assistant  read {"path": "a"}, read {"path": "b"}  -> "text of a", an error
assistant  done {}                          (no result: the run ends here, or this is the answer)
"""

import json
from typing import Any
from zlib import crc32

SEARCH: dict[str, Any] = {"q": "x"}
READ_A, READ_B = {"path": "a"}, {"path": "b"}
NOTHING, TEXT_A, ERROR_B = "nothing found", "text of a", "Error: no such file"

EXPECTED = [
    [[("search", SEARCH, NOTHING)]] * 3,
    [[("read", READ_A, TEXT_A), ("read", READ_B, ERROR_B)], [("done", {}, None)]],
]
"""Turns, rounds, and for each call its tool, arguments and the beginning of its result."""


def calls() -> dict[str, Any]:
    """The shape of recorded runs."""
    listed = [_call(at, 0, "search", SEARCH, NOTHING) for at in range(3)]
    listed += [_call(3, 1, "read", READ_A, TEXT_A), _call(3, 1, "read", READ_B, ERROR_B) | {"is_error": True}]
    listed.append({"turn": 4, "user_turn": 1, "name": "done", "arguments": "{}"})
    return {"id": "run-1", "source": "lab", "model": "m", "success": False, "calls": listed}


def _call(turn: int, user_turn: int, name: str, arguments: object, result: str) -> dict[str, Any]:
    known = {
        "result": result,
        "is_error": False,
        "result_sha1": "0" * 16,
        "result_norm_sha1": f"{crc32(result.encode()):08x}",
    }
    return {"turn": turn, "user_turn": user_turn, "name": name, "arguments": json.dumps(arguments)} | known


def chat_messages() -> list[dict[str, Any]]:
    """OpenAI chat completions."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "find it"}]
    for at in range(3):
        history += [_chat_turn((f"call_s{at}", "search", SEARCH)), _tool(f"call_s{at}", NOTHING)]
    history += [
        {"role": "user", "content": "go on"},
        _chat_turn(("call_a", "read", READ_A), ("call_b", "read", READ_B)),
        _tool("call_b", ERROR_B),
        _tool("call_a", TEXT_A),
    ]
    return history


def chat_answer() -> dict[str, Any]:
    """The answer that brings the last call."""
    message = _chat_turn(("call_d", "done", {}))
    return {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}


def _chat_turn(*listed: tuple[str, str, object]) -> dict[str, Any]:
    tool_calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in listed
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def _tool(id_: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def chat() -> dict[str, Any]:
    """A whole request body, with the answer beside it."""
    return {"model": "m", "messages": chat_messages(), "tools": [{"type": "function"}], "response": chat_answer()}


def chat_history() -> list[dict[str, Any]]:
    """A bare list of messages, the last call among them."""
    return [*chat_messages(), _chat_turn(("call_d", "done", {}))]


def responses() -> dict[str, Any]:
    """OpenAI Responses."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "find it"}]
    for at in range(3):
        items += [_item(f"s{at}", "search", SEARCH), _output(f"s{at}", NOTHING)]
    items += [
        {"role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        _item("a", "read", READ_A),
        _item("b", "read", READ_B),
        _output("a", TEXT_A),
        _output("b", ERROR_B),
    ]
    answer = {"id": "resp_1", "object": "response", "status": "completed", "output": [_item("d", "done", {})]}
    return {"model": "m", "input": items, "response": answer}


def _item(id_: str, name: str, arguments: object) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": json.dumps(arguments)}


def _output(id_: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": output}


def anthropic() -> dict[str, Any]:
    """Anthropic messages, without the keys that only a whole body has."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "find it"}]
    for at in range(3):
        history += [_uses((f"s{at}", "search", SEARCH)), _results((f"s{at}", NOTHING, False))]
    history += [
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        _uses(("a", "read", READ_A), ("b", "read", READ_B)),
        _results(("a", TEXT_A, False), ("b", ERROR_B, True)),
    ]
    answer = {"type": "message", "role": "assistant", "stop_reason": "tool_use", **_uses(("d", "done", {}))}
    return {"messages": history, "response": answer}


def _uses(*listed: tuple[str, str, object]) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": id_, "name": name, "input": arguments} for id_, name, arguments in listed]
    return {"role": "assistant", "content": blocks}


def _results(*listed: tuple[str, str, bool]) -> dict[str, Any]:
    blocks = [
        {"type": "tool_result", "tool_use_id": id_, "content": text, "is_error": failed} for id_, text, failed in listed
    ]
    return {"role": "user", "content": blocks}


def gemini() -> dict[str, Any]:
    """Gemini, without ids."""
    history: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "find it"}]}]
    for _ in range(3):
        history += [_model(("search", SEARCH)), _answers(("search", {"output": NOTHING}))]
    history += [
        {"role": "user", "parts": [{"text": "go on"}]},
        _model(("read", READ_A), ("read", READ_B)),
        _answers(("read", {"output": TEXT_A}), ("read", {"error": ERROR_B})),
    ]
    candidate = {"index": 0, "finishReason": "STOP", "content": _model(("done", {}))}
    return {"contents": history, "response": {"candidates": [candidate]}}


def _model(*listed: tuple[str, object]) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": args}} for name, args in listed]}


def _answers(*listed: tuple[str, object]) -> dict[str, Any]:
    parts = [{"functionResponse": {"name": name, "response": response}} for name, response in listed]
    return {"role": "user", "parts": parts}


def bedrock() -> dict[str, Any]:
    """Bedrock's Converse."""
    history: list[dict[str, Any]] = [{"role": "user", "content": [{"text": "find it"}]}]
    for at in range(3):
        history += [_tool_uses((f"s{at}", "search", SEARCH)), _tool_results((f"s{at}", NOTHING, "success"))]
    history += [
        {"role": "user", "content": [{"text": "go on"}]},
        _tool_uses(("a", "read", READ_A), ("b", "read", READ_B)),
        _tool_results(("a", TEXT_A, "success"), ("b", ERROR_B, "error")),
    ]
    return {"messages": history, "response": {"output": {"message": _tool_uses(("d", "done", {}))}}}


def _tool_uses(*listed: tuple[str, str, object]) -> dict[str, Any]:
    content = [{"toolUse": {"toolUseId": id_, "name": name, "input": value}} for id_, name, value in listed]
    return {"role": "assistant", "content": content}


def _tool_results(*listed: tuple[str, str, str]) -> dict[str, Any]:
    content = [
        {"toolResult": {"toolUseId": id_, "content": [{"text": text}], "status": status}}
        for id_, text, status in listed
    ]
    return {"role": "user", "content": content}


def ollama() -> dict[str, Any]:
    """Ollama, whose results name the tool."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "find it"}]
    for _ in range(3):
        history += [_ollama_turn(("search", SEARCH)), {"role": "tool", "tool_name": "search", "content": NOTHING}]
    history += [
        {"role": "user", "content": "go on"},
        _ollama_turn(("read", READ_A), ("read", READ_B)),
        {"role": "tool", "tool_name": "read", "content": TEXT_A},
        {"role": "tool", "tool_name": "read", "content": ERROR_B},
    ]
    return {"model": "m", "messages": history, "response": {"message": _ollama_turn(("done", {})), "done": True}}


def _ollama_turn(*listed: tuple[str, object]) -> dict[str, Any]:
    tool_calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in listed]
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}


def litellm() -> dict[str, Any]:
    """LiteLLM's standard logging payload."""
    head = {"id": "chatcmpl-1", "trace_id": "trace-1", "call_type": "acompletion", "status": "success", "model": "m"}
    return head | {"messages": chat_messages(), "response": chat_answer(), "model_parameters": {}}


def litellm_callback() -> dict[str, Any]:
    """The same as a callback is given it."""
    return {"litellm_call_id": "1", "standard_logging_object": litellm()}


def litellm_spend_log() -> dict[str, Any]:
    """A row of LiteLLM's spend log: the request is the client's own body, as JSON text."""
    body = {"model": "m", "max_tokens": 100, "messages": anthropic()["messages"]}
    texts: dict[str, Any] = {
        "proxy_server_request": json.dumps(body),
        "messages": "{}",
        "response": json.dumps(chat_answer()),
    }
    return {"request_id": "chatcmpl-1", "session_id": "s-1", "call_type": "anthropic_messages", "model": "m"} | texts


def otel_input() -> list[dict[str, Any]]:
    """Messages as OpenTelemetry's conventions have them."""
    history: list[dict[str, Any]] = [{"role": "user", "parts": [{"type": "text", "content": "find it"}]}]
    for at in range(3):
        history += [_otel_calls((f"s{at}", "search", SEARCH)), _otel_results("tool", (f"s{at}", NOTHING))]
    history += [
        {"role": "user", "parts": [{"type": "text", "content": "go on"}]},
        _otel_calls(("a", "read", READ_A), ("b", "read", READ_B)),
        _otel_results("user", ("a", TEXT_A), ("b", ERROR_B)),
    ]
    return history


def _otel_calls(*listed: tuple[str, str, object]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "reasoning", "content": "Hm."}]
    parts += [{"type": "tool_call", "id": id_, "name": name, "arguments": value} for id_, name, value in listed]
    return {"role": "assistant", "parts": parts}


def _otel_results(role: str, *listed: tuple[str, str]) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "tool_call_response", "id": i, "response": text} for i, text in listed]}


def _otel_attributes() -> dict[str, Any]:
    output = [_otel_calls(("d", "done", {})) | {"finish_reason": "tool_call"}]
    names = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "conv-1"}
    return names | {"gen_ai.input.messages": otel_input(), "gen_ai.output.messages": output}


def otel_flat() -> dict[str, Any]:
    """A span with plain attributes, the messages as JSON text."""
    attributes = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in _otel_attributes().items()
    }
    return {"name": "chat m", "context": {"trace_id": "0xabc"}, "attributes": attributes}


def otlp_span() -> dict[str, Any]:
    """A line of OTLP's file exporter: two spans, of which one has messages, as JSON text."""
    plain = {"traceId": "abc", "name": "execute_tool read", "attributes": otlp({"gen_ai.tool.name": "read"})}
    span = {"traceId": "abc", "name": "chat m", "attributes": otlp(otel_flat()["attributes"])}
    resource = {"attributes": otlp({"service.name": "shop"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [plain, span]}]}]}


def otlp_log() -> dict[str, Any]:
    """The same as an event, with structured values."""
    record = {"traceId": "abc", "eventName": "gen_ai.client.inference.operation.details"}
    logged = record | {"attributes": otlp(_otel_attributes())}
    return {"resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [{"logRecords": [logged]}]}]}


def otlp(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP's JSON has them."""
    return [{"key": key, "value": _typed(value)} for key, value in attributes.items()]


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case dict():
            return {"kvlistValue": {"values": otlp(value)}}
        case list():
            return {"arrayValue": {"values": [_typed(one) for one in value]}}
        case _:
            return {"stringValue": value}


EVERY_FORMAT: dict[str, Any] = {
    "calls": calls(),
    "chat": chat(),
    "chat history": chat_history(),
    "chat, body under request": {"request": {"model": "m", "messages": chat_messages()}, "response": chat_answer()},
    "responses": responses(),
    "responses items": [*responses()["input"], *responses()["response"]["output"]],
    "anthropic": anthropic(),
    "anthropic history": [*anthropic()["messages"], _uses(("d", "done", {}))],
    "gemini": gemini(),
    "gemini contents": [*gemini()["contents"], _model(("done", {}))],
    "bedrock": bedrock(),
    "ollama": ollama(),
    "litellm": litellm(),
    "litellm callback": litellm_callback(),
    "litellm spend log": litellm_spend_log(),
    "opentelemetry span": otel_flat(),
    "opentelemetry OTLP spans": otlp_span(),
    "opentelemetry OTLP logs": otlp_log(),
}
"""The conversation in every format."""
