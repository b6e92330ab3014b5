"""Anthropic's messages, as single hosts and betas send them."""

import json
from typing import Any

from tests.dialects.quirks import ZEBRA, Quirk


def event(kind: str, **more: Any) -> bytes:
    """An event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def block(index: int, kind: str, *pieces: str, **more: Any) -> bytes:
    """A block whose input comes in these pieces, to its end."""
    start = event("content_block_start", index=index, content_block={"type": kind, **more})
    grows = (
        event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        for piece in pieces
    )
    return start + b"".join(grows) + event("content_block_stop", index=index)


def tool_use(index: int, *pieces: str, kind: str = "tool_use", **more: Any) -> bytes:
    """A call."""
    return block(index, kind, *pieces, **({"id": f"toolu_{index}", "name": "search", "input": {}} | more))


def text(index: int) -> bytes:
    """A text."""
    said = event("content_block_delta", index=index, delta={"type": "text_delta", "text": "I looked."})
    start = event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    return start + said + event("content_block_stop", index=index)


HEAD: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
BEGIN = event("message_start", message={**HEAD, "usage": {"input_tokens": 3, "output_tokens": 1}})


def end(reason: str = "tool_use") -> bytes:
    """The last two events."""
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9}) + event("message_stop")


ONE = (0, "toolu_0", "search", ZEBRA)
RESULTS = [
    ("advisor", "advisor_tool_result"),
    ("bash_code_execution", "bash_code_execution_tool_result"),
    ("code_execution", "code_execution_tool_result"),
    ("text_editor_code_execution", "text_editor_code_execution_tool_result"),
    ("tool_search_tool_bm25", "tool_search_tool_result"),
    ("web_fetch", "web_fetch_tool_result"),
    ("web_search", "web_search_tool_result"),
]
"""The vendor's own tools and the blocks of their results."""

QUIRKS = [
    *(
        Quirk(
            f"block:{result}",
            BEGIN
            + tool_use(0, ZEBRA, kind="server_tool_use", id="srvtoolu_0", name=tool)
            + block(1, result, tool_use_id="srvtoolu_0", content=[{"type": "x", "input": {"query": "zebra"}}])
            + text(2)
            + end("end_turn"),
            withheld=False,
            history=[(tool, ZEBRA)],
        )
        for tool, result in RESULTS
    ),
    Quirk(
        "block:mcp_tool_use, block:mcp_tool_result",
        BEGIN
        + tool_use(0, ZEBRA, kind="mcp_tool_use", id="mcptoolu_0", server_name="s")
        + block(1, "mcp_tool_result", tool_use_id="mcptoolu_0", is_error=False, content=[])
        + text(2)
        + end("end_turn"),
        withheld=False,
        history=[("search", ZEBRA)],
    ),
    Quirk(
        "a call of the client's beside one of the vendor's that has its result",
        BEGIN
        + tool_use(0, ZEBRA, kind="server_tool_use", id="srvtoolu_0", name="web_search")
        + block(1, "web_search_tool_result", tool_use_id="srvtoolu_0", content=[])
        + tool_use(2, ZEBRA, id="toolu_0")
        + end(),
        [ONE],
        kept=b"web_search_tool_result",
    ),
    Quirk("a first piece of nothing", BEGIN + tool_use(0, "", '{"query":', '"zebra"}') + end(), [ONE]),
    Quirk("no arguments: one piece of nothing", BEGIN + tool_use(0, "") + end(), [(0, "toolu_0", "search", "")]),
    Quirk("the input in the block's start", BEGIN + tool_use(0, input={"query": "zebra"}) + end(), [ONE]),
    Quirk("no event lines", (BEGIN + tool_use(0, ZEBRA) + end()).replace(b"event: ", b": "), [ONE]),
    Quirk("no blank line at the end", (BEGIN + tool_use(0, ZEBRA) + end())[:-2], [ONE]),
    Quirk(
        "cut by max_tokens: the block never stops, its last event never ends",
        (
            BEGIN
            + text(0)
            + tool_use(1, '{"query":"zeb').partition(b"event: content_block_stop")[0]
            + event("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 9})
        )[:-1],
        [(0, "toolu_1", "search", '{"query":"zeb')],
        withheld=False,
        history=[("search", ZEBRA)],
    ),
    Quirk(
        "a second message_start in the middle of a call",
        BEGIN + tool_use(0, ZEBRA[:8]).partition(b"event: content_block_stop")[0] + BEGIN + tool_use(0, ZEBRA) + end(),
        [(0, "toolu_0", "search", ZEBRA[:8]), ONE],
        withheld=False,
        history=[("search", ZEBRA)],
    ),
    Quirk(
        "fine-grained streaming: arguments that are no JSON",
        BEGIN + tool_use(0, '{"query":', "zebra") + end(),
        [(0, "toolu_0", "search", '{"query":zebra')],
        withheld=False,
        history=[("search", ZEBRA)],
    ),
    Quirk(
        "a whole answer with the vendor's own calls",
        json.dumps(
            {
                **HEAD,
                "content": [
                    {"type": "server_tool_use", "id": "srvtoolu_0", "name": "search", "input": {"query": "zebra"}},
                    {"type": "mcp_tool_use", "id": "mcptoolu_0", "name": "search", "input": {"query": "zebra"}},
                    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_0", "content": []},
                ],
                "stop_reason": "end_turn",
            }
        ).encode(),
        withheld=False,
        form="json",
        history=[("search", ZEBRA)],
    ),
]
