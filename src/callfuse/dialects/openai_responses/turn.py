"""The model's own turn: the id and the output items of its response, with which the next request goes on.

Items go back as they came, encrypted reasoning byte for byte. An item that cannot be sent as input, and a call whose
result has no room for a text, raise AskError.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import AskError
from callfuse.dialects.openai_responses.items import CALLS, RESULTS, is_client_call
from callfuse.dialects.openai_responses.read import TERMINAL
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps, loads, span, spans

_INPUTS: Final = frozenset(
    {
        *CALLS,
        *RESULTS,
        "message",
        "reasoning",
        "compaction",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "program",
        "program_output",
    }
)
"""Types of items that the vendor takes back."""


def turn(payloads: Sequence[Payload]) -> bytes:
    """The turn that the events come to: the terminal event's items, or where it has none those that were streamed."""
    response: Payload = {}
    items: dict[Any, Payload] = {}
    for payload in payloads:
        kind = payload.get("type")
        if kind == "response.output_item.done":
            items[payload.get("output_index")] = payload["item"]
        elif kind == "response.created" or kind in TERMINAL:
            response = payload.get("response") or {}
    output = response.get("output") or list(items.values())
    _check(output)
    return dumps({"id": response.get("id"), "output": output})


def turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """The turn of a whole answer, its items as they stand in it."""
    place = span(body, ("output",))
    if place is None:
        raise AskError("output")
    _check(payload["output"])
    return b'{"id":%b,"output":%b}' % (dumps(payload.get("id")), body[place[0] : place[1]])


def id_of(turn: bytes) -> str:
    """The id of the response that a turn is of."""
    return str(loads(turn).get("id") or "")


def items_of(turn: bytes) -> list[tuple[bytes, Payload]]:
    """The items of a turn, each as its bytes and its value."""
    start, _ = span(turn, ("output",)) or (0, 0)
    raw = [turn[item.value : item.end] for item in spans(turn, start)]
    return [(text, loads(text)) for text in raw]


def _check(output: Sequence[Payload]) -> None:
    for item in output:
        kind = str(item.get("type"))
        if kind not in _INPUTS or (is_client_call(item) and CALLS[kind].answer is None):
            raise AskError(kind)
