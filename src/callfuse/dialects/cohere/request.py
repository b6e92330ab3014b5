"""Requests of Cohere's chat. Histories are as in OpenAI chat completions; answers and tool choice are not."""

from typing import ClassVar, Final

from callfuse.dialects.base import Block
from callfuse.dialects.cohere.answer import CohereWriter
from callfuse.dialects.openai_chat.request import ChatRequest
from callfuse.wire import Format
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import Edit, dumps

_NONE: Final = {"input_tokens": 0, "output_tokens": 0}
_NO_TOKENS: Final = {"billed_units": _NONE, "tokens": _NONE}


class CohereRequest(ChatRequest):
    """A request to Cohere's chat API."""

    __slots__ = ()

    _name_keys: ClassVar[tuple[str, ...]] = ()

    def writer(self, *, usage: str, form: Format | None = None) -> CohereWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return CohereWriter(structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """Return an answer with this text."""
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return dumps({"id": "callfuse", "finish_reason": "COMPLETE", "message": message, "usage": _NO_TOKENS})

    def _own_stream(self, text: str) -> bytes:
        start = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        begun = typed_event({"id": "callfuse", "type": "message-start", "delta": {"message": start}})
        writer = self.writer(usage="last")
        writer.note_sent({"type": "message-end", "delta": {"usage": _NO_TOKENS}})
        return begun + writer.close({0: Block(text)})

    def _forbid_calls(self) -> list[Edit]:
        return [Edit(("tool_choice",), b'"NONE"')]

    def _loosen_choice(self) -> list[Edit]:
        """Keep `REQUIRED` if another tool can be called; otherwise return the edit that removes the choice."""
        if self._payload.get("tool_choice") == "REQUIRED" and len(self._payload.get("tools") or ()) < 2:
            return [Edit(("tool_choice",), None)]
        return []
