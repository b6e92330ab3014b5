"""OpenAI chat completions, including legacy `function_call`, of OpenAI and all vendors with the same format."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from callfuse.dialects.addresses import publisher_in
from callfuse.dialects.defaults import OpenAIDialect
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.openai_chat.answer import ChatReader, model_turn, model_turn_of_whole, read_whole, said
from callfuse.dialects.openai_chat.chunk import choice_parts
from callfuse.dialects.openai_chat.details import MARK as DETAIL_MARK
from callfuse.dialects.openai_chat.request import ChatRequest
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.dialects.repeats import CHAT_REPEATS
from callfuse.dialects.tokens import CHAT
from callfuse.wire import Payload, sse

_RAW: Final = (":rawPredict", ":streamRawPredict")
_PUBLISHERS: Final = ("mistralai", "ai21")
"""Publishers whose models use this format on Vertex."""


class OpenAIChat(OpenAIDialect):
    """The dialect `openai-chat`."""

    name: Final = "openai-chat"
    backend: Final = "openai"
    usual_path: Final = "/v1/chat/completions"
    call_mark: Final = b"_call"
    counts: ClassVar = CHAT
    repeats: ClassVar = CHAT_REPEATS
    early_mark: ClassVar = DETAIL_MARK
    reader: ClassVar = ChatReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)

    def serves(self, path: str) -> bool:
        """Whether the path ends as OpenAI's does, or is Vertex's path for a vendor of this format."""
        path = path.rstrip("/")
        return path.endswith("/chat/completions") or (path.endswith(_RAW) and publisher_in(path) in _PUBLISHERS)

    def read_request(self, body: bytes, payload: Any, target: str = "") -> ChatRequest | None:
        """Return the request, if it has messages."""
        return ChatRequest(body, payload, target) if has_messages(payload) else None

    def is_end(self, frame: bytes) -> bool:
        """Whether the frame is `[DONE]`."""
        return sse.is_done(frame)

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the indexes of a payload's choices."""
        return [part.number for part in choice_parts(payload)]

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by messages that no other dialect recognises, and an answer by `choices`. Runs last."""
        if value == []:
            return Recorded({"messages": value})
        body = body_in(value, "messages", lambda message: "role" in message, by_key=True)
        return body or answer_in(value, "choices", list)
