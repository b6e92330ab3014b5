"""Cohere's chat API, `/v2/chat`: typed server-sent events, and whole answers."""

from typing import Any, ClassVar, Final

from callfuse.dialects.cohere.answer import CohereReader, model_turn, model_turn_of_whole, read_whole, said
from callfuse.dialects.cohere.request import CohereRequest
from callfuse.dialects.defaults import EventDialect
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.recorded import Recorded, answer_in
from callfuse.dialects.tokens import COHERE
from callfuse.wire.jsontext import dumps


class Cohere(EventDialect):
    """The dialect `cohere-v2`. `message-end` ends an answer; the `[DONE]` after it is not needed."""

    name: Final = "cohere-v2"
    backend: Final = "cohere"
    usual_path: Final = "/v2/chat"
    call_mark: Final = b"tool_calls"
    counts: ClassVar = COHERE
    kept_mark = b"content-start"
    reader: ClassVar = CohereReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/v2/chat`."""
        return path.rstrip("/").endswith("/v2/chat")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> CohereRequest | None:
        """Return the request, if it has messages."""
        return CohereRequest(body, payload) if has_messages(payload) else None

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in Cohere's format."""
        return dumps({"message": message})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise an answer by a `message` beside a `finish_reason`. Recorded requests look like OpenAI's."""
        return answer_in(value, "message", dict) if isinstance(value, dict) and "finish_reason" in value else None
