"""Jot's requests: a list of messages, each result a message of its own with the id of its call."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from callfuse.dialects.ask_again import CannotReplay, Reply
from callfuse.dialects.base import Block
from callfuse.dialects.message_list import ResultMessages
from callfuse.model import ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, Path, dumps

from .answer import JotWriter, calls_of


class JotRequest(ResultMessages):
    """A chat that is asked for."""

    __slots__ = ()

    _stream_type = b"application/jsonl"

    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        return [*calls_of(message)]

    def _key(self, message: Payload) -> Any:
        return message.get("id")

    def _tool_names(self) -> Iterator[Any]:
        yield from self._payload.get("tools", ())

    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> Iterator[bytes]:
        for reply in replies:
            yield dumps({"role": "tool", "id": reply.call.id, "content": reply.text})

    def _without_reasoning(self, message: Any, path: Path, reader: str) -> Iterable[Edit]:
        return ()

    def _forbid_calls(self) -> Iterable[Edit]:
        raise CannotReplay("tools")

    def _loosen_choice(self) -> Iterable[Edit]:
        return ()

    def writer(self, *, usage: str, form: Format | None = None) -> JotWriter:
        """A writer for the answer to this request."""
        return JotWriter()

    def own_answer(self, text: str) -> bytes:
        """An answer that says this text."""
        return dumps({"text": text, "calls": [], "end": "stop"})

    def _own_stream(self, text: str) -> bytes:
        return JotWriter().close({0: Block(text)})
