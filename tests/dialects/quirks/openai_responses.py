"""Responses as OpenAI and those who copy it stream them: the habits that no kit renders."""

import json
from typing import Any

from tests.dialects.openai_responses.wire import Habits, Item, function, message, reasoning, stream
from tests.dialects.quirks import ZEBRA, Quirk

CALL = function("call_one", arguments=ZEBRA)
ONE = (0, "call_one", "search", ZEBRA)


def with_deltas(body: bytes, *pieces: str, **more: Any) -> bytes:
    """A stream without numbers, its call's arguments in these pieces before its end."""
    events = [
        {
            "type": "response.function_call_arguments.delta",
            "item_id": CALL["id"],
            "output_index": 0,
            "delta": piece,
            **more,
        }
        for piece in pieces
    ]
    before, done, after = body.partition(b"event: response.output_item.done")
    return before + b"".join(_event(one) for one in events) + done + after


def _event(payload: dict[str, Any]) -> bytes:
    return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


UNNUMBERED = Habits(numbered=False)
FAILED = stream(message(), CALL, habits=Habits(end="failed", final_output=False))
ERROR = _event({"type": "error", "sequence_number": 8, "error": {"type": "invalid_request_error", "message": "No."}})

VENDORS: list[Item] = [
    {"type": "code_interpreter_call", "code": ZEBRA, "container_id": "cntr_1", "outputs": []},
    {"type": "file_search_call", "queries": ["zebra"], "results": None},
    {"type": "image_generation_call", "result": "iVBORw0KGgo="},
    {"type": "web_search_call", "action": {"type": "search", "query": "zebra"}},
    {"type": "mcp_call", "name": "search", "arguments": ZEBRA, "server_label": "s", "output": "nothing", "error": None},
    {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "search", "input_schema": {}}]},
]

QUIRKS = [
    Quirk(
        "argument deltas, padded with obfuscation",
        with_deltas(stream(CALL, habits=UNNUMBERED), '{"query":', '"zebra"}', obfuscation="Qx7"),
        [ONE],
    ),
    Quirk(
        "the whole call in one delta",
        with_deltas(stream(CALL, habits=UNNUMBERED), ZEBRA),
        [ONE],
    ),
    Quirk(
        "comments, no event lines, [DONE] (OpenRouter)",
        b": OPENROUTER PROCESSING\n\n" * 3 + stream(reasoning(), CALL, habits=Habits(named=False, done=True)),
        [ONE],
        kept=b": OPENROUTER PROCESSING\n\n" * 3,
    ),
    Quirk(
        "an error, then response.failed",
        FAILED.replace(b"event: response.failed", ERROR + b"event: response.failed"),
        [ONE],
        withheld=False,
    ),
    *(
        Quirk(
            f"{item['type']}: the vendor's own",
            stream({"id": "it_1", "status": "completed", **item}, message()),
            withheld=False,
            history=[(name, ZEBRA)],
        )
        for item in VENDORS
        for name in [str(item.get("name", item["type"]))]
    ),
]
