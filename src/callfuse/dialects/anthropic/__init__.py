"""Anthropic messages: Anthropic's own API, Vertex `:rawPredict` and `:streamRawPredict`, Bedrock `/invoke`."""

from typing import Any, ClassVar, Final

from callfuse.dialects.addresses import publisher_in
from callfuse.dialects.anthropic.answer import (
    MessagesReader,
    is_unfinished,
    model_turn,
    model_turn_of_whole,
    read_whole,
    said,
)
from callfuse.dialects.anthropic.request import MessagesRequest
from callfuse.dialects.defaults import EventDialect
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.recorded import Recorded, answer_in, blocks_of, body_in
from callfuse.dialects.tokens import MESSAGES
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import dumps

_ERROR_TYPES: Final = {400: "invalid_request_error", 404: "not_found_error", 502: "api_error", 504: "timeout_error"}
_SHARED: Final = (":rawPredict", ":streamRawPredict", "/invoke")
"""Ends of paths that serve other vendors' models, too. The dialect `bedrock_invoke` reads Bedrock's streams."""


class MessagesDialect(EventDialect):
    """A dialect whose answers are Anthropic's messages, in whatever format they are transported."""

    reader: ClassVar = MessagesReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)
    is_unfinished = staticmethod(is_unfinished)


class Anthropic(MessagesDialect):
    """The dialect `anthropic`."""

    name: Final = "anthropic"
    backend: Final = "anthropic"
    usual_path: Final = "/v1/messages"
    call_mark: Final = b"tool_use"
    counts: ClassVar = MESSAGES
    heartbeat = b'event: ping\ndata: {"type": "ping"}\n\n'

    def serves(self, path: str) -> bool:
        """Whether the path serves messages. On shared paths the body decides. Counting tokens is not an exchange."""
        path = path.rstrip("/")
        if path.endswith("/v1/messages"):
            return True
        return path.endswith(_SHARED) and "count-tokens" not in path and publisher_in(path) in ("", "anthropic")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> MessagesRequest | None:
        """Return the request, if the body has messages and `max_tokens` or `anthropic_version`."""
        return MessagesRequest(body, payload, target) if is_messages(payload) else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the frame is a ping or contains only comments."""
        return payload.get("type") == "ping" if payload else sse.is_comment(frame)

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in Anthropic's format."""
        kind = _ERROR_TYPES.get(status, "api_error")
        return dumps({"type": "error", "error": {"type": kind, "message": message}})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by `anthropic_version` or tool blocks in messages, and an answer by a list `content`."""
        by_key = isinstance(value, dict) and "anthropic_version" in value
        if body := body_in(value, "messages", _has_tool_blocks, by_key=by_key):
            return Recorded({"max_tokens": 0} | body.payload)  # `read_request` demands it, and a bare history has none
        return answer_in(value, "content", list)


def is_messages(payload: Any) -> bool:
    """Whether a body is a request to Anthropic's API: it has messages and `max_tokens` or `anthropic_version`."""
    return has_messages(payload) and ("max_tokens" in payload or "anthropic_version" in payload)


def _has_tool_blocks(message: Payload) -> bool:
    return any(block.get("type") in ("tool_use", "tool_result") for block in blocks_of(message))
