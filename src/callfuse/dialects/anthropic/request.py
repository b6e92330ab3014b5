"""Requests of Anthropic messages: reads rounds and tools, and writes changed bodies."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from callfuse.dialects.anthropic.answer import NAMED_EVENTS, EventStream, MessagesWriter, is_direct, thinks
from callfuse.dialects.ask_again import Reply
from callfuse.dialects.base import Block
from callfuse.dialects.declared import DescribedTool, described, entries, name_of
from callfuse.dialects.history import without_parts
from callfuse.dialects.message_list import KeyedResult, ResultBlocks
from callfuse.dialects.shapes import list_of
from callfuse.model import ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, Path, dumps

_OWN_TYPES: Final = (None, "custom")
"""Types of tools that the client describes itself."""
_CLEARING: Final = "clear_thinking"
"""Prefix of the context edits that the vendor accepts only if thinking is on."""


class MessagesRequest(ResultBlocks):
    """A request to Anthropic's Messages API."""

    __slots__ = ()

    _joins_roles = True
    _block_path = ("content",)
    _events: ClassVar[EventStream] = NAMED_EVENTS

    def __init__(self, body: bytes, payload: Payload, target: str = "") -> None:
        super().__init__(body, payload, target)
        self.probe |= payload.get("max_tokens") == 1
        config = payload.get("output_config")
        forms = (config.get("format") if isinstance(config, dict) else None, payload.get("output_format"))
        self.structured = any(isinstance(form, dict) for form in forms)

    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        content = message.get("content")
        if type(content) is not list:
            return []
        calls = []
        for at, block in enumerate(content):
            if type(block) is not dict or block.get("type") != "tool_use":
                continue
            if (caller := block.get("caller")) is None or is_direct(caller):
                id_, name = block.get("id"), block.get("name")
                exact = partial(self._exact.read, "messages", position, "content", at, "input")
                id_ = id_ if type(id_) is str else str(id_ or "")
                name = name if type(name) is str else str(name or "")
                calls.append(ToolCall(id_, name, block.get("input"), "", "", exact))
        return calls

    @staticmethod
    def _read_result(block: Any) -> KeyedResult | None:
        if type(block) is not dict or block.get("type") != "tool_result":
            return None
        id_, flag = block.get("tool_use_id"), block.get("is_error")
        result = block.get("content"), None if flag is None else bool(flag)
        return id_ if type(id_) is str else str(id_ or ""), result

    def _tool_names(self) -> Iterator[Any]:
        """Yield the names of the tools, then of tools that system messages add. Toolsets, e.g. of MCP servers, have no
        name."""
        if self._payload.get("mcp_servers"):
            yield None
        for tool in entries(self._payload.get("tools")):
            yield name_of(tool)
        for definition, _ in self._added_tools():
            yield name_of(definition)

    def _added_tools(self) -> Iterator[tuple[Any, Path]]:
        """Yield the tools that blocks of system messages define, with their paths."""
        for place, message in enumerate(self._messages):
            if isinstance(message, dict) and message.get("role") == "system":
                content = message.get("content")
                for at, block in enumerate(content if isinstance(content, list) else ()):
                    if (definition := _added_tool(block)) is not None:
                        yield definition, ("messages", place, "content", at, "tool", "definition")

    def described_tools(self) -> Iterator[DescribedTool]:
        """Yield the client's own tools; the vendor's tools have a type and no description."""
        listed = [(tool, ("tools", at)) for at, tool in enumerate(list_of(self._payload.get("tools")))]
        for tool, path in (*listed, *self._added_tools()):
            if isinstance(tool, dict) and tool.get("type") in _OWN_TYPES:
                yield from described(tool, path)

    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> list[bytes]:
        results = [
            {"type": "tool_result", "tool_use_id": reply.call.id, "is_error": True, "content": reply.text}
            for reply in replies
        ]
        return [dumps({"role": "user", "content": results})]

    def _without_reasoning(self, message: Any, path: Path, reader: str) -> Iterator[Edit]:
        return without_parts(message, path, thinks)

    def _without_reasoning_setting(self) -> Iterator[Edit]:
        """Yield the edits that remove thinking with a budget, and the context edits that need thinking."""
        thinking = self._payload.get("thinking")
        if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
            return
        yield Edit(("thinking",), None)
        management = self._payload.get("context_management")
        edits = management.get("edits") if isinstance(management, dict) else None
        for at, edit in enumerate(edits if isinstance(edits, list) else ()):
            if isinstance(edit, dict) and str(edit.get("type")).startswith(_CLEARING):
                yield Edit(("context_management", "edits", at), None)

    def _forbid_calls(self) -> list[Edit]:
        return [Edit(("tool_choice",), b'{"type":"none"}')]

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `auto`; `any` stays if another tool can be called."""
        choice = self._payload.get("tool_choice")
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind == "tool":
            return [Edit(("tool_choice", "type"), b'"auto"'), Edit(("tool_choice", "name"), None)]
        if kind == "any" and len(self._payload.get("tools") or ()) < 2:
            return [Edit(("tool_choice", "type"), b'"auto"')]
        return []

    def writer(self, *, usage: str, form: Format | None = None) -> MessagesWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return MessagesWriter(structured=self.structured, summed=usage == "sum", events=self._events)

    def own_answer(self, text: str) -> bytes:
        """Return a message with this text."""
        return dumps(self._own_head() | {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"})

    def _own_head(self) -> Payload:
        return {
            "id": "msg_callfuse",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _own_stream(self, text: str) -> bytes:
        begun = self._events.write({"type": "message_start", "message": self._own_head()})
        return begun + self.writer(usage="last").close({0: Block(text)})


def _added_tool(block: Any) -> Any:
    """Return the tool that a block of a system message defines; None if it defines none."""
    tool = block.get("tool") if isinstance(block, dict) and block.get("type") == "tool_addition" else None
    return tool.get("definition") if isinstance(tool, dict) else None
