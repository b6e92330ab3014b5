"""OpenAI's Responses API, of OpenAI and of vendors and gateways with the same format."""

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from callfuse.dialects.defaults import OpenAIDialect, is_polled
from callfuse.dialects.openai_responses.answer import ResponsesReader, model_turn, model_turn_of_whole, read_whole, said
from callfuse.dialects.openai_responses.items import CALLS, RESULTS
from callfuse.dialects.openai_responses.request import ResponsesRequest
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.dialects.tokens import RESPONSES
from callfuse.wire import Payload

_ITEMS: Final = frozenset({*CALLS, *RESULTS, "reasoning", "item_reference", "compaction"})
"""Types of items by which a recorded history is recognised."""


class OpenAIResponses(OpenAIDialect):
    """The dialect `openai-responses`."""

    name: Final = "openai-responses"
    history_key: ClassVar = "input"
    backend: Final = "openai"
    usual_path: Final = "/v1/responses"
    call_mark: Final = b"_call"
    counts: ClassVar = RESPONSES
    kept_mark = b"_item."
    reader: ClassVar = ResponsesReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/responses`. Paths below it (stored responses) are not exchanges."""
        return path.rstrip("/").endswith("/responses")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> ResponsesRequest | None:
        """Return the request if the body has an input. None if the answer is generated in the background without a
        stream: the response then comes before the model has said anything."""
        if not isinstance(payload, dict) or is_polled(payload):
            return None
        spoken = payload.get("input", [] if payload.get("previous_response_id") else None)
        return ResponsesRequest(body, payload) if isinstance(spoken, str | list) else None

    def is_unfinished(self, payloads: Iterable[Payload]) -> bool:
        """Whether one of the vendor's programs still waits, or the client has to approve a call of a vendor's tool."""
        items: list[Payload] = []
        for payload in payloads:
            response = payload.get("response")
            output = response.get("output") if isinstance(response, dict) else payload.get("output")
            listed = output if isinstance(output, list) else []
            items += [item for item in (*listed, payload.get("item")) if isinstance(item, dict)]
        begun = {item.get("call_id") for item in items if item.get("type") == "program"}
        ended = {item.get("call_id") for item in items if item.get("type") == "program_output"}
        return bool(begun - ended) or any(item.get("type") == "mcp_approval_request" for item in items)

    def answer_id(self, payload: Payload) -> str:
        """Return the id of the response, from its body or from an event that has it; empty if there is none."""
        response = payload.get("response")
        if isinstance(response, dict):
            return str(response.get("id") or "")
        return str(payload.get("id") or "") if payload.get("object") == "response" else ""

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by `input` and its items' types (a text only beside a `model`), and an answer by a list
        `output`. A body with `messages` belongs to another dialect."""
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            return None
        if isinstance(value, dict) and isinstance(value.get("input"), str) and "model" in value:
            return Recorded(value)
        body = body_in(value, "input", lambda item: str(item.get("type")) in _ITEMS, by_key=True)
        return body or answer_in(value, "output", list)
