"""Ollama's own chats, `/api/chat`: NDJSON streams, and whole answers where `stream` is false."""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Request, WholeChoice
from callfuse.dialects.ollama.read import ChatReader, read_whole
from callfuse.dialects.ollama.request import ChatRequest
from callfuse.dialects.ollama.turn import turn, turn_of_whole
from callfuse.dialects.ollama.write import NO_TIME
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import dumps
from callfuse.wire.ndjson import NDJSON

_NOTHING: Final = {"model": "", "created_at": NO_TIME, "message": {"role": "assistant", "content": ""}, "done": False}


class Ollama:
    """The dialect `ollama`."""

    name: Final = "ollama"
    backend: Final = "ollama"
    call_mark: Final = b'"tool_calls"'
    heartbeat: Final = dumps(_NOTHING) + b"\n"

    def serves(self, path: str) -> bool:
        """Any path that ends so; the body tells Ollama's from an application's own."""
        return path.rstrip("/").endswith("/api/chat")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> ChatRequest | None:
        """The request, if it has a model and messages."""
        if not isinstance(payload, dict) or not isinstance(payload.get("messages"), list):
            return None
        return ChatRequest(body, payload) if isinstance(payload.get("model"), str) else None

    def stream_format(self, content_type: bytes, request: Request) -> Format | None:
        """Lines; some servers that speak Ollama declare them as plain JSON."""
        if content_type.startswith((b"application/x-ndjson", b"application/jsonl", b"application/x-jsonlines")):
            return NDJSON
        return NDJSON if request.stream and content_type.startswith(b"application/json") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Blank lines, and lines that say nothing at all."""
        if payload is None:
            return frame.isspace()
        message = payload.get("message")
        if not isinstance(message, dict) or payload.get("done") or not payload.keys() <= _NOTHING.keys():
            return False
        return not any(value for key, value in message.items() if key != "role")

    def is_end(self, frame: bytes) -> bool:
        """The end has a payload."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """There is one."""
        return (0,)

    def reader(self, *, trace: bool = False) -> ChatReader:
        """The assembly of one streamed answer."""
        return ChatReader(trace=trace)

    def turn(self, payloads: Sequence[Payload]) -> bytes:
        """The assistant message of a streamed answer."""
        return turn(payloads)

    def turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """The assistant message of a whole answer."""
        return turn_of_whole(body, payload)

    def is_unfinished(self, payloads: Sequence[Payload]) -> bool:
        """There are no server-side tools."""
        return False

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of the message."""
        return read_whole(payload)

    def error_body(self, status: int, message: str) -> bytes:
        """Ollama's error envelope."""
        return dumps({"error": message})

    def recognise(self, value: Any) -> Recorded | None:
        """By results that name their tool, or by a `message` that stands alone."""
        return body_in(value, "messages", lambda one: "tool_name" in one) or answer_in(value, "message", dict)
