"""Jot, a chat in JSON lines, `/jot/chat`: a line says a text, a call, or the end; a whole answer is one object."""

from typing import Any, ClassVar, Final

from callfuse.dialects.defaults import EventDialect
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import dumps
from callfuse.wire.ndjson import NDJSON

from .answer import JotReader, model_turn, model_turn_of_whole, read_whole, said
from .request import JotRequest


class Jot(EventDialect):
    """The dialect `jot`."""

    name: Final = "jot"
    backend: Final = "jot"
    usual_path: Final = "/jot/chat"
    call_mark: Final = b'"call'
    heartbeat = b"\n"
    reader: ClassVar = JotReader
    model_turn = staticmethod(model_turn)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends as Jot's does."""
        return path.endswith("/jot/chat")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> JotRequest | None:
        """The request, if it has messages."""
        return JotRequest(body, payload) if has_messages(payload) else None

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """JSON lines."""
        return NDJSON if content_type.startswith(b"application/jsonl") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the line is blank."""
        return payload is None

    def model_turn_of_whole(self, body: bytes, payload: Payload) -> bytes:
        """The assistant message of a whole answer."""
        return model_turn_of_whole(payload)

    def error_body(self, status: int, message: str) -> bytes:
        """Jot's error."""
        return dumps({"error": message})

    def recognise(self, value: Any) -> Recorded | None:
        """By messages with `calls`, or by an `end`."""
        return body_in(value, "messages", lambda one: "calls" in one) or answer_in(value, "end", str)
