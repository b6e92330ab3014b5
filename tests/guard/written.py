"""Answers written by hand, event by event, for what no kit renders.

In: deltas and content blocks. Out: chunks of one event each. The calls repeat those of `tests.support.plain.spin`.
"""

import json
from typing import Any

from tests.support.kits import KITS
from tests.support.kits.anthropic import AnthropicKit
from tests.support.kits.openai_chat import OpenAIChatKit
from tests.support.model import History
from tests.support.plain import ARGUMENTS, spin

OPENAI, ANTHROPIC = (next(kit for kit in KITS if isinstance(kit, kind)) for kind in (OpenAIChatKit, AnthropicKit))
SEARCH = json.loads(ARGUMENTS)
DONE = b"data: [DONE]\n\n"


def body(kit: Any, *, stream: bool = True, history: History | None = None, **more: Any) -> bytes:
    """A request about a call that has come twice, with more fields."""
    return json.dumps(json.loads(kit.request(history or spin(), stream=stream)) | more).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, *, choice: int = 0, **more: Any) -> bytes:
    """One chat completion chunk with one choice; `more` goes beside the delta."""
    choices = [{"index": choice, "delta": delta, "finish_reason": finish, **more}]
    return data({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices})


def usage_chunk(prompt: int, completion: int, **more: Any) -> bytes:
    """The chunk that only tells tokens."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return data(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    )


def part(
    call_id: str = "call_first", arguments: str = ARGUMENTS, *, index: int = 0, name: str = "search", **more: Any
) -> Any:
    """A whole call as the delta of one chunk has it."""
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "type": "function", "function": function, **more}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """One content block of an Anthropic answer."""
    return [
        event({"type": "content_block_start", "index": index, "content_block": start}),
        *(event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        event({"type": "content_block_stop", "index": index}),
    ]


def tool_use(
    index: int, call_id: str = "call_first", kind: str = "tool_use", piece: str = ARGUMENTS, **more: Any
) -> list[bytes]:
    """The call once more, or a call of the vendor's own."""
    start = {"type": kind, "id": call_id, "name": "search", "input": {}, **more}
    return block(index, start, {"type": "input_json_delta", "partial_json": piece})


def text(index: int, said: str) -> list[bytes]:
    """A text block."""
    return block(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": said})


def message(*blocks: list[bytes], stop: str = "tool_use", **usage: int) -> list[bytes]:
    """An Anthropic answer around these blocks."""
    start: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    counts = {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 1} | usage
    return [
        event({"type": "message_start", "message": {**start, "stop_sequence": None, "usage": counts}}),
        *(one for made in blocks for one in made),
        event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop, "stop_sequence": None},
                "usage": {"output_tokens": 5},
            }
        ),
        event({"type": "message_stop"}),
    ]


def data(payload: dict[str, Any]) -> bytes:
    """An event without a name."""
    return f"data: {json.dumps(payload)}\n\n".encode()


def event(payload: dict[str, Any]) -> bytes:
    """An event named for its type."""
    return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


def payloads(out: bytes) -> list[dict[str, Any]]:
    """The objects in a stream."""
    lines = [line.removeprefix("data: ") for line in out.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]
