"""Cohere's chats, `/v2/chat`: typed server-sent events, and whole answers."""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Request, WholeChoice
from callfuse.dialects.cohere.read import ChatReader, read_whole
from callfuse.dialects.cohere.request import ChatRequest
from callfuse.dialects.cohere.turn import turn, turn_of_whole
from callfuse.dialects.recorded import Recorded
from callfuse.wire import EVENTS, Format, Payload, sse
from callfuse.wire.jsontext import dumps


class Cohere:
    """The dialect `cohere-v2`."""

    name: Final = "cohere-v2"
    backend: Final = "cohere"
    call_mark: Final = b"tool_calls"
    heartbeat: Final = b": keep-alive\n\n"

    def serves(self, path: str) -> bool:
        """Any path that ends so."""
        return path.rstrip("/").endswith("/v2/chat")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> ChatRequest | None:
        """The request, if it has messages."""
        if not isinstance(payload, dict) or not isinstance(payload.get("messages"), list):
            return None
        return ChatRequest(body, payload)

    def stream_format(self, content_type: bytes, request: Request) -> Format | None:
        """Server-sent events."""
        return EVENTS if content_type.startswith(b"text/event-stream") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Comments."""
        return payload is None and sse.is_comment(frame)

    def is_end(self, frame: bytes) -> bool:
        """The end has a payload; the `[DONE]` behind it says nothing more."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """There is one."""
        return (0,)

    def reader(self, *, trace: bool = False) -> ChatReader:
        """The assembly of one streamed answer."""
        return ChatReader()

    def turn(self, payloads: Sequence[Payload]) -> bytes:
        """The assistant message of a streamed answer."""
        return turn(payloads)

    def turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """The assistant message of a whole answer."""
        return turn_of_whole(body, payload)

    def is_unfinished(self, payloads: Sequence[Payload]) -> bool:
        """There are no server-side tools that wait."""
        return False

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of the message."""
        return read_whole(payload)

    def error_body(self, status: int, message: str) -> bytes:
        """Cohere's error envelope."""
        return dumps({"message": message})

    def recognise(self, value: Any) -> Recorded | None:
        """Nothing: its messages are those of OpenAI chat completions."""
        return None
