"""Who speaks OpenAI's format, and how: the habits of single vendors that no kit renders."""

import json
from typing import Any

from tests.dialects.quirks import OKAPI, ZEBRA, Quirk

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def event(*choices: dict[str, Any], **more: Any) -> bytes:
    """A chunk with these choices."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n".encode()


def delta(finish: str | None = None, /, *, at: int = 0, **more: Any) -> bytes:
    """A chunk with one choice."""
    return event({"index": at, "delta": more, "finish_reason": finish})


def calls(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """A chunk with these parts of calls."""
    return delta(finish, tool_calls=list(parts), **more)


def part(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    """A part of a call, with no more than is given."""
    return {**more, "function": ({} if name is None else {"name": name}) | {"arguments": arguments}}


def whole(*parts: dict[str, Any], finish: str | None = "tool_calls", **more: Any) -> bytes:
    """A whole answer with these calls."""
    message = {"role": "assistant", "content": None, **more, "tool_calls": list(parts)}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return json.dumps({"id": "c1", "object": "chat.completion", "choices": choices}).encode()


def signature(id_: str, data: str = "c2ln") -> dict[str, Any]:
    """The detail that holds the signature of a call."""
    return {"type": "reasoning.encrypted", "data": data, "format": "google-gemini-v1", "id": id_, "index": 0}


WHOLE = part("search", ZEBRA, index=0, id="call_one", type="function")
OTHER = part("search", OKAPI, index=1, id="call_two", type="function")
ONE, TWO = (0, "call_one", "search", ZEBRA), (0, "call_two", "search", OKAPI)
END = delta("tool_calls") + DONE
ODD = "a\u2028b\u2029c\x85d".encode()

QUIRKS = [
    Quirk(
        "null arguments, then pieces (Writer)",
        calls(part("search", None, index=0, id="call_one"))
        + delta(tool_calls=None)
        + calls(part(None, ZEBRA, index=0))
        + calls(part(None, None, index=0))
        + END,
        [ONE],
    ),
    Quirk(
        "null arguments of a call without any (Meta)",
        calls(part("lookup", None, index=0, id="call_one")) + END,
        [(0, "call_one", "lookup", "")],
    ),
    Quirk(
        "neither id nor index, finish_reason stop in the same chunk (Gemini)",
        calls(part("search", ZEBRA, id="", type="function"), finish="stop", role="assistant") + DONE,
        [(0, "", "search", ZEBRA)],
    ),
    Quirk(
        "no id, no index, two calls in one chunk (Gemini)",
        calls(part("search", ZEBRA, id=""), part("search", OKAPI, id=""), finish="stop") + DONE,
        [(0, "", "search", ZEBRA), (0, "", "search", OKAPI)],
    ),
    Quirk(
        "ids but no index, a chunk each (Gemini)",
        calls(part("search", ZEBRA, id="call_one")) + calls(part("search", OKAPI, id="call_two"), finish="stop") + DONE,
        [ONE, TWO],
    ),
    Quirk(
        "no type, no index, whole calls with the finish reason (Mistral)",
        delta(role="assistant", content="")
        + event(
            {
                "index": 0,
                "delta": {
                    "content": "",
                    "tool_calls": [part("search", ZEBRA, id="call_one"), part("search", OKAPI, id="call_two")],
                },
                "finish_reason": "tool_calls",
            },
            usage=USAGE,
        )
        + DONE,
        [ONE, TWO],
    ),
    Quirk(
        "the id comes after the name",
        calls(part("search", "", index=0)) + calls(part(None, ZEBRA, index=0, id="call_one")) + END,
        [ONE],
    ),
    Quirk(
        "arguments as an object",
        calls(part("search", {"query": "zebra"}, index=0, id="call_one")) + END,
        [ONE],
    ),
    Quirk(
        "content and a call in one delta",
        calls(WHOLE, role="assistant", content="Let me look.") + END,
        [ONE],
        kept=b"Let me look.",
    ),
    Quirk(
        "the index begins at 1 (Anthropic behind a proxy)",
        delta(content="I ")
        + calls(part("search", "", index=1, id="call_one"))
        + calls(part(None, ZEBRA, index=1))
        + END,
        [ONE],
    ),
    Quirk(
        "index 0 on every parallel call (gateways)",
        calls(part("search", "", index=0, id="call_one"))
        + calls(part(None, ZEBRA, index=0))
        + calls(part("search", OKAPI, index=0, id="call_two"))
        + END,
        [ONE, TWO],
    ),
    Quirk(
        "a finish reason behind each call, more calls behind it",
        calls(WHOLE, finish="tool_calls") + calls(OTHER, finish="tool_calls") + DONE,
        [ONE, TWO],
    ),
    Quirk(
        "the finish reason again, with the usage (OpenRouter)",
        calls(WHOLE, finish="tool_calls")
        + event({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "tool_calls"}, usage=USAGE)
        + DONE,
        [ONE],
    ),
    Quirk(
        "no choices before the first (Azure)",
        event(prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}])
        + calls(WHOLE)
        + event({"index": 0, "finish_reason": None, "content_filter_results": {}, "content_filter_offsets": {}})
        + END,
        [ONE],
    ),
    Quirk(
        "usage beside the choices",
        calls(WHOLE) + event({"index": 0, "delta": {}, "finish_reason": "tool_calls"}, usage=USAGE) + DONE,
        [ONE],
        kept=json.dumps(USAGE).encode(),
    ),
    Quirk(
        "another id in every chunk",
        (calls(WHOLE) + END).replace(b'"id": "c1"', b'"id": "c2"', 1),
        [ONE],
    ),
    Quirk("no [DONE]", calls(WHOLE) + delta("tool_calls"), [ONE]),
    Quirk(
        "comments in place of events, dates in them (sse-starlette)",
        b": ping - 2026-01-01 00:00:00+00:00\r\n\r\n" + (calls(WHOLE) + END).replace(b"\n\n", b"\r\n\r\n"),
        [ONE],
    ),
    Quirk(
        "a blank before the first data: no event to a strict reader",
        b" " + delta(role="assistant", content="") + calls(WHOLE) + END,
        [ONE],
    ),
    Quirk(
        "characters that other languages end a line at",
        delta(content="ODD").replace(b"ODD", ODD) + calls(WHOLE) + END,
        [ONE],
        kept=ODD,
    ),
    Quirk(
        "cut by the limit behind a whole call",
        calls(WHOLE) + delta("length") + DONE,
        [ONE],
        finish="length",
    ),
    Quirk(
        "an error event in a 200 (Groq)",
        delta(role="assistant", content="Let me look.")
        + calls(WHOLE)
        + b'event: error\ndata: {"error":{"message":"Failed to call a function.","code":"tool_use_failed"}}\n\n',
        [ONE],
        withheld=False,
    ),
    Quirk(
        "no finish reason at all (Kimi at Novita)",
        calls(WHOLE) + event({"index": 0, "delta": {"content": ""}, "finish_reason": None}, usage=USAGE) + DONE,
        [ONE],
        kept=json.dumps(USAGE).encode(),
    ),
    Quirk(
        "no finish reason, the usage in a chunk of its own",
        delta(role="assistant", content="") + calls(WHOLE) + calls(OTHER) + event(usage=USAGE) + DONE,
        [ONE, TWO],
        kept=json.dumps(USAGE).encode(),
    ),
    Quirk(
        "no finish reason, and the key left out",
        event({"index": 0, "delta": {"tool_calls": [WHOLE]}}) + DONE,
        [ONE],
    ),
    Quirk(
        "no finish reason, nor arguments",
        calls(part("lookup", "", index=0, id="call_one")) + DONE,
        [(0, "call_one", "lookup", "")],
    ),
    Quirk(
        "no finish reason, text behind the call",
        calls(WHOLE) + delta(content="I look.") + DONE,
        [ONE],
        kept=b"I look.",
    ),
    Quirk(
        "a finish reason behind the first call only",
        calls(WHOLE, finish="tool_calls") + calls(OTHER) + DONE,
        [ONE, TWO],
    ),
    Quirk(
        "no finish reason, and a call that lacks its end",
        calls(WHOLE) + calls(part("search", ZEBRA[:-1], index=1, id="call_two")) + DONE,
        [ONE, (0, "call_two", "search", ZEBRA[:-1])],
        withheld=False,
    ),
    Quirk(
        "no finish reason, but an error",
        calls(WHOLE) + b'data: {"error":{"message":"The server had an error","type":"server_error"}}\n\n' + DONE,
        [ONE],
        withheld=False,
    ),
    Quirk(
        "custom tools, their input in pieces",
        delta(role="assistant", content=None)
        + calls({"index": 0, "id": "call_one", "type": "custom", "custom": {"name": "sum", "input": ""}})
        + calls({"index": 0, "custom": {"input": "1 + "}})
        + calls({"index": 0, "custom": {"input": "2"}})
        + calls({"index": 1, "id": "call_two", "type": "custom", "custom": {"name": "sum", "input": "{"}})
        + END,
        [(0, "call_one", "sum", "1 + 2"), (0, "call_two", "sum", "{")],
        history=[("sum", "1 + 2"), ("sum", "{")],
    ),
    Quirk(
        "a whole answer with a custom tool",
        whole({"id": "call_one", "type": "custom", "custom": {"name": "sum", "input": "1 + 2"}}),
        [(0, "call_one", "sum", "1 + 2")],
        form="json",
    ),
    Quirk(
        "a custom tool, and no finish reason",
        calls({"index": 0, "id": "call_one", "type": "custom", "custom": {"name": "sum", "input": "1 +"}}) + DONE,
        [(0, "call_one", "sum", "1 +")],
    ),
    Quirk(
        "an empty function_call beside the calls, and an empty finish reason (Snowflake)",
        whole(
            WHOLE | {"custom": {"name": "", "input": ""}},
            finish="",
            content="I look.",
            function_call={"name": "", "arguments": ""},
            audio={"id": "", "data": "", "expires_at": 0},
        ),
        [(0, "call_one", "search", '{"query": "zebra"}')],
        kept=b"I look.",
        form="json",
    ),
    Quirk(
        "an empty function_call in a stream",
        delta(role="assistant", function_call={"name": "", "arguments": ""})
        + calls(WHOLE | {"custom": {"name": "", "input": ""}}, function_call={"name": "", "arguments": ""})
        + END,
        [ONE],
    ),
    Quirk(
        "the signature of a call before it, under its id (Gemini at OpenRouter)",
        delta(role="assistant", content="", reasoning_details=[signature("tool_search_x1")])
        + calls(WHOLE | {"id": "tool_search_x1"})
        + END,
        [(0, "tool_search_x1", "search", ZEBRA)],
    ),
    Quirk(
        "keys that nobody has heard of",
        delta(role="assistant", content="I look.", channel="final", token_id=7)
        + calls(WHOLE, name="search", provider_metadata={"gateway": {"cost": "0"}}, graph_data={"sources": None})
        + END,
        [ONE],
        kept=b"I look.",
    ),
    Quirk(
        "a refusal",
        delta(role="assistant", content="", refusal="") + delta(refusal="I cannot.") + delta("stop") + DONE,
        withheld=False,
        history=[("search", ZEBRA)],
    ),
    Quirk(
        "a whole answer with an empty legacy call and an empty finish reason (Snowflake)",
        json.dumps(
            {
                "id": "c1",
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "Let me look.",
                            "function_call": {"name": "", "arguments": ""},
                            "tool_calls": [WHOLE | {"custom": {"name": "", "input": ""}}],
                        },
                        "finish_reason": "stop",
                    }
                ],
            }
        ).encode(),
        [(0, "call_one", "search", '{"query": "zebra"}')],
        kept=b'"function_call": {"name": "", "arguments": ""}',
        form="json",
    ),
    Quirk(
        "a custom tool, whose input is a text (OpenAI)",
        calls({"index": 0, "id": "call_one", "type": "custom", "custom": {"name": "search", "input": ""}})
        + calls({"index": 0, "custom": {"input": '{"query":'}})
        + calls({"index": 0, "custom": {"input": '"zebra"}'}})
        + END,
        [ONE],
    ),
    Quirk(
        "a whole answer without index, type and id (Gemini)",
        json.dumps(
            {
                "id": "c1",
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "tool_calls": [part("search", ZEBRA, id="")]},
                        "finish_reason": "stop",
                    }
                ],
            }
        ).encode(),
        [(0, "", "search", '{"query": "zebra"}')],
        form="json",
    ),
]
