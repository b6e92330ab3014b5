"""Gemini: `:generateContent` and `:streamGenerateContent` of AI Studio and of Vertex, under any prefix."""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Request, WholeChoice
from callfuse.dialects.gemini.answer import GeminiReader, read_whole, turn, turn_of_whole
from callfuse.dialects.gemini.request import GeminiRequest
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.wire import CRLF_EVENTS, JSON_ARRAY, Format, Payload, sse
from callfuse.wire.jsontext import dumps

_STATUSES: Final = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 502: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
_BLANKS: Final = frozenset({b"\r\n\r\n", b"\n\n", b"\r\r"})


class Gemini:
    """The dialect `gemini`."""

    name: Final = "gemini"
    backend: Final = "gemini"
    call_mark: Final = b"functionCall"
    early_mark: Final = b""
    heartbeat: Final = b"\r\n\r\n"

    def serves(self, path: str) -> bool:
        """Paths that end in one of the two methods; counting tokens and batches are no exchange."""
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def read_request(self, body: bytes, payload: Any, target: str = "") -> GeminiRequest | None:
        """The request, if it has contents."""
        if not isinstance(payload, dict) or not isinstance(payload.get("contents"), list):
            return None
        return GeminiRequest(body, payload, target)

    def stream_format(self, content_type: bytes, request: Request) -> Format | None:
        """Server-sent events, or one JSON array in pieces; the request notes which."""
        if content_type.startswith(b"text/event-stream"):
            return CRLF_EVENTS
        if not (request.stream and isinstance(request, GeminiRequest) and content_type.startswith(b"application/json")):
            return None
        request.is_array = True
        return JSON_ARRAY

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Blank lines and comments."""
        return payload is None and (frame in _BLANKS or sse.is_comment(frame))

    def is_end(self, frame: bytes) -> bool:
        """The body's end is that of the answer."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """The indexes of its candidates."""
        return [candidate.get("index") or 0 for candidate in payload.get("candidates") or ()]

    def reader(self, *, trace: bool = False) -> GeminiReader:
        """The assembly of one streamed answer."""
        return GeminiReader(trace=trace)

    def turn(self, payloads: Sequence[Payload]) -> bytes:
        """The content of a streamed answer."""
        return turn(payloads)

    def turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """The content of a whole answer."""
        return turn_of_whole(body, payload)

    def is_unfinished(self, payloads: Sequence[Payload]) -> bool:
        """Whether a tool that the vendor runs has been called whose result is not there."""
        parts = [
            part
            for payload in payloads
            for candidate in payload.get("candidates") or ()
            for part in (candidate.get("content") or {}).get("parts") or ()
        ]
        called = {part["toolCall"].get("id") for part in parts if part.get("toolCall")}
        answered = {part["toolResponse"].get("id") for part in parts if part.get("toolResponse")}
        run = sum("executableCode" in part for part in parts) - sum("codeExecutionResult" in part for part in parts)
        return bool(called - answered) or run > 0

    def read_whole(self, payload: Payload) -> list[WholeChoice]:
        """The calls of each candidate."""
        return read_whole(payload)

    def error_body(self, status: int, message: str) -> bytes:
        """Google's error envelope."""
        return dumps({"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}})

    def recognise(self, value: Any) -> Recorded | None:
        """By `contents` and their `parts`, or by `candidates`."""
        body = body_in(value, "contents", lambda content: isinstance(content.get("parts"), list), by_key=True)
        return body or answer_in(value, "candidates", list)
