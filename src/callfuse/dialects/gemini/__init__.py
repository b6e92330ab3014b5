"""Gemini: `:generateContent` and `:streamGenerateContent` of AI Studio and of Vertex, under any prefix."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from callfuse.dialects.gemini.answer import (
    GeminiReader,
    candidates_of,
    model_turn,
    model_turn_of_whole,
    number_of,
    parts_of,
    read_whole,
    said,
)
from callfuse.dialects.gemini.request import GeminiRequest
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.dialects.repeats import NO_REPEATS
from callfuse.dialects.shapes import object_of
from callfuse.dialects.tokens import GEMINI
from callfuse.wire import CRLF_EVENTS, JSON_ARRAY, Format, Payload, sse
from callfuse.wire.jsontext import dumps

_STATUSES: Final = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 502: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
_BLANKS: Final = frozenset({b"\r\n\r\n", b"\n\n", b"\r\r"})


class Gemini:
    """The dialect `gemini`."""

    name: Final = "gemini"
    history_key: Final = "contents"
    backend: Final = "gemini"
    usual_path: Final = "/v1beta/models/model:generateContent"
    call_mark: Final = b"functionCall"
    counts: ClassVar = GEMINI
    repeats: Final = NO_REPEATS
    kept_mark: Final = b""
    early_mark: Final = b""
    heartbeat: Final = b"\r\n\r\n"
    reader: ClassVar = GeminiReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends in one of the two methods. Counting tokens and batches are not exchanges."""
        return path.rstrip("/").endswith((":generateContent", ":streamGenerateContent"))

    def read_request(self, body: bytes, payload: Any, target: str = "") -> GeminiRequest | None:
        """Return the request, if the body has contents."""
        if not isinstance(payload, dict) or not isinstance(payload.get("contents"), list):
            return None
        return GeminiRequest(body, payload, target)

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return the format of server-sent events, or of a JSON array in pieces; None for a whole body."""
        if content_type.startswith(b"text/event-stream"):
            return CRLF_EVENTS
        return JSON_ARRAY if asked and content_type.startswith(b"application/json") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the frame is a blank line or a comment."""
        return payload is None and (frame in _BLANKS or sse.is_comment(frame))

    def is_end(self, frame: bytes) -> bool:
        """Return False: an answer ends with its body, not with a frame."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the indexes of the candidates in a payload."""
        return [number_of(candidate) for candidate in candidates_of(payload)]

    def is_unfinished(self, payloads: Iterable[Payload]) -> bool:
        """Whether the result of a tool that the vendor runs is missing."""
        parts = [part for one in payloads for candidate in candidates_of(one) for part in parts_of(candidate)]
        called = {str(object_of(part["toolCall"]).get("id")) for part in parts if part.get("toolCall")}
        answered = {str(object_of(part["toolResponse"]).get("id")) for part in parts if part.get("toolResponse")}
        run = sum("executableCode" in part for part in parts) - sum("codeExecutionResult" in part for part in parts)
        return bool(called - answered) or run > 0

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in Google's format."""
        return dumps({"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by `contents` with `parts`, and an answer by `candidates`."""
        body = body_in(value, "contents", lambda content: isinstance(content.get("parts"), list), by_key=True)
        return body or answer_in(value, "candidates", list)
