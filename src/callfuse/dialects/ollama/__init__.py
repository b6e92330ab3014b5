"""Ollama's own chat API, `/api/chat`: NDJSON streams, and whole answers if `stream` is false."""

from typing import Any, ClassVar, Final

from callfuse.dialects.defaults import EventDialect
from callfuse.dialects.edits import message_at
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.ollama.answer import NO_TIME, OllamaReader, model_turn, read_whole, said
from callfuse.dialects.ollama.request import OllamaRequest
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.dialects.repeats import OLLAMA_REPEATS
from callfuse.dialects.tokens import OLLAMA
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import dumps
from callfuse.wire.ndjson import NDJSON

_NOTHING: Final = {"model": "", "created_at": NO_TIME, "message": {"role": "assistant", "content": ""}, "done": False}


class Ollama(EventDialect):
    """The dialect `ollama`."""

    name: Final = "ollama"
    backend: Final = "ollama"
    usual_path: Final = "/api/chat"
    call_mark: Final = b'"tool_calls"'
    counts: ClassVar = OLLAMA
    repeats: ClassVar = OLLAMA_REPEATS
    kept_mark = b""
    heartbeat = dumps(_NOTHING) + b"\n"
    reader: ClassVar = OllamaReader
    model_turn = staticmethod(model_turn)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/api/chat`. Other applications may have such a path, so the body decides."""
        return path.rstrip("/").endswith("/api/chat")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> OllamaRequest | None:
        """Return the request, if the body has a model and messages."""
        is_chat = has_messages(payload) and isinstance(payload.get("model"), str)
        return OllamaRequest(body, payload) if is_chat else None

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return NDJSON, which some servers declare as plain JSON; None for a whole body."""
        if content_type.startswith((b"application/x-ndjson", b"application/jsonl", b"application/x-jsonlines")):
            return NDJSON
        return NDJSON if asked and content_type.startswith(b"application/json") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the line is blank, or a message without content."""
        if payload is None:
            return frame.isspace()
        message = payload.get("message")
        if not isinstance(message, dict) or payload.get("done") or not payload.keys() <= _NOTHING.keys():
            return False
        return not any(value for key, value in message.items() if key != "role")

    def model_turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """Return the message of a whole answer, without empty keys."""
        return message_at(body, ("message",))

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in Ollama's format."""
        return dumps({"error": message})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by results with a `tool_name`, and an answer by a `message` that is not Cohere's."""
        if isinstance(value, dict) and "finish_reason" in value:
            return None
        return body_in(value, "messages", lambda one: "tool_name" in one) or answer_in(value, "message", dict)
