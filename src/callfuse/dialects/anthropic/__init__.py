"""Anthropic messages: Anthropic's own API, Vertex `:rawPredict` and `:streamRawPredict`, Bedrock `/invoke`."""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.anthropic.read import MessagesReader, read_whole
from callfuse.dialects.anthropic.request import MessagesRequest
from callfuse.dialects.anthropic.turn import turn, turn_of_whole
from callfuse.dialects.base import Request, WholeChoice
from callfuse.dialects.recorded import Recorded, answer_in, blocks_of, body_in
from callfuse.wire import EVENTS, Format, Payload, sse
from callfuse.wire.jsontext import dumps

_ERROR_TYPES: Final = {400: "invalid_request_error", 404: "not_found_error", 502: "api_error", 504: "timeout_error"}


_SHARED: Final = (":rawPredict", ":streamRawPredict", "/invoke", "/invoke-with-response-stream")
"""How paths end that other vendors' models are served under too. Bedrock's streams are binary: they pass unread."""


class Anthropic:
    """The dialect `anthropic`."""

    name: Final = "anthropic"
    backend: Final = "anthropic"
    call_mark: Final = b"tool_use"
    heartbeat: Final = b'event: ping\ndata: {"type": "ping"}\n\n'

    def serves(self, path: str) -> bool:
        """Paths of messages; of those that other vendors share, the body decides. Counting tokens is no exchange."""
        if path.rstrip("/").endswith("/v1/messages"):
            return True
        return path.endswith(_SHARED) and "count-tokens" not in path

    def read_request(self, body: bytes, payload: Any, target: str = "") -> MessagesRequest | None:
        """The request, if it has messages and Anthropic's limit or version."""
        if not isinstance(payload, dict) or not isinstance(payload.get("messages"), list):
            return None
        if "max_tokens" not in payload and "anthropic_version" not in payload:
            return None
        return MessagesRequest(body, payload)

    def stream_format(self, content_type: bytes, request: Request) -> Format | None:
        """Server-sent events."""
        return EVENTS if content_type.startswith(b"text/event-stream") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Pings and comments."""
        return payload.get("type") == "ping" if payload else sse.is_comment(frame)

    def is_end(self, frame: bytes) -> bool:
        """The end has a payload."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """There is one."""
        return (0,)

    def reader(self, *, trace: bool = False) -> MessagesReader:
        """The assembly of one streamed answer."""
        return MessagesReader()

    def turn(self, payloads: Sequence[Payload]) -> bytes:
        """The assistant message of a streamed answer."""
        return turn(payloads)

    def turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """The assistant message of a whole answer."""
        return turn_of_whole(body)

    def is_unfinished(self, payloads: Sequence[Payload]) -> bool:
        """Whether a server tool has been called whose result is not there, or the turn is paused."""
        blocks: list[Payload] = []
        reasons = []
        for payload in payloads:
            blocks += [block for block in payload.get("content") or () if isinstance(block, dict)]
            blocks += [payload["content_block"]] if "content_block" in payload else []
            reasons += [payload.get("stop_reason"), (payload.get("delta") or {}).get("stop_reason")]
        called = {block.get("id") for block in blocks if block.get("type") in ("server_tool_use", "mcp_tool_use")}
        answered = {block.get("tool_use_id") for block in blocks}
        return bool(called - answered) or "pause_turn" in reasons

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of the message."""
        return read_whole(payload)

    def error_body(self, status: int, message: str) -> bytes:
        """Anthropic's error envelope."""
        kind = _ERROR_TYPES.get(status, "api_error")
        return dumps({"type": "error", "error": {"type": kind, "message": message}})

    def recognise(self, value: Any) -> Recorded | None:
        """By `anthropic_version` or blocks of tool use and results among messages, or by a list `content`."""
        by_key = isinstance(value, dict) and "anthropic_version" in value
        if body := body_in(value, "messages", _has_tool_blocks, by_key=by_key):
            return Recorded({"max_tokens": 0} | body.payload)  # what tells a whole body, and a bare history has not
        return answer_in(value, "content", list)


def _has_tool_blocks(message: Payload) -> bool:
    return any(block.get("type") in ("tool_use", "tool_result") for block in blocks_of(message))
