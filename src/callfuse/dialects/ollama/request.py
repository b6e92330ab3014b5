"""Requests of Ollama's chat.

In newer clients, a result names its call by id; in others by the tool's name; in old ones only by its order.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from callfuse.dialects.ask_again import Reply
from callfuse.dialects.base import Block
from callfuse.dialects.declared import DescribedTool, described_under, entries, name_of
from callfuse.dialects.message_list import Key, KeyedResult, ResultMessages
from callfuse.dialects.nudges import with_media
from callfuse.dialects.ollama.answer import NO_TIME, OllamaWriter, calls_of
from callfuse.dialects.shapes import is_one_of, list_of
from callfuse.model import ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, Path, dumps


class OllamaRequest(ResultMessages):
    """A request to Ollama's chat API."""

    __slots__ = ()

    _names_calls_by_id = False
    _name_keys = ("tool_name", "name")
    _stream_type = b"application/x-ndjson"

    def __init__(self, body: bytes, payload: Payload) -> None:
        super().__init__(body, payload)
        self.stream = payload.get("stream") is not False
        options = payload.get("options")
        self.probe |= isinstance(options, dict) and options.get("num_predict") == 1
        self.structured = bool(payload.get("format"))

    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        return calls_of(message, self._exact, position)

    def _key(self, message: Payload) -> tuple[Any, Any]:
        """Return the call's id and the tool's name in a result; either may be missing."""
        return message.get("tool_call_id"), message.get("tool_name") or message.get("name")

    def _match(self, calls: Sequence[ToolCall], keys: Sequence[Key]) -> tuple[list[str] | None, list[str]]:
        """Match by ids if any result has a call's id, else by names; empty for a result that names no call here."""
        ids = {call.id for call in calls if call.id}
        if ids and any(is_one_of(id_, ids) for id_, _ in keys):
            return None, [str(id_ or "") for id_, _ in keys]
        names = {call.name for call in calls}
        return [call.name for call in calls], [str(name) if is_one_of(name, names) else "" for _, name in keys]

    def _results(self, position: int, message: Payload, role: Any) -> list[KeyedResult]:
        if role == "user":
            return []
        content, images = message.get("content"), [*_images_of(message), *self._shown_behind(position)]
        if images:
            content = with_media(content, images)
        return [(self._key(message), (content, None))]

    def _spoken(self, message: Payload) -> Any:
        images = _images_of(message)
        return [message.get("content"), *images] if images else message.get("content")

    def _tool_names(self) -> Iterator[Any]:
        for tool in entries(self._payload.get("tools")):
            yield name_of(tool.get("function")) if isinstance(tool, dict) else None

    def described_tools(self) -> Iterator[DescribedTool]:
        """Return the tools; all of them are functions."""
        return described_under("function", self._payload.get("tools"), ("tools",))

    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> Iterator[bytes]:
        for reply in replies:
            id_ = {"tool_call_id": reply.call.id} if reply.call.id else {}
            yield dumps({"role": "tool", "tool_name": reply.call.name, **id_, "content": reply.text})

    def _without_reasoning(self, message: Any, path: Path, reader: str) -> list[Edit]:
        return [Edit((*path, "thinking"), None)] if isinstance(message, dict) and "thinking" in message else []

    def _forbid_calls(self) -> list[Edit]:
        """Return the edit that removes the tools: Ollama has no tool choice."""
        return [Edit(("tools",), None)]

    def _loosen_choice(self) -> Iterable[Edit]:
        return ()

    def writer(self, *, usage: str, form: Format | None = None) -> OllamaWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return OllamaWriter(structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """Return an answer with this text."""
        message = {"role": "assistant", "content": text}
        head = {"model": self.model, "created_at": NO_TIME}
        return dumps(head | {"message": message, "done": True, "done_reason": "stop"})

    def _own_stream(self, text: str) -> bytes:
        writer = self.writer(usage="last")
        writer.note_sent({"model": self.model, "created_at": NO_TIME})
        return writer.close({0: Block(text)})


def _images_of(message: Payload) -> Sequence[Payload]:
    """Return the images of a message, as parts of a content."""
    return [{"type": "image", "data": image} for image in list_of(message.get("images"))]
