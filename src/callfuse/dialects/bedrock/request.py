"""Requests of Bedrock's Converse. The path names the model and whether the answer is streamed."""

from collections.abc import Iterator, Sequence
from typing import Any

from callfuse.dialects.addresses import model_in
from callfuse.dialects.ask_again import CannotReplay, Reply
from callfuse.dialects.base import Block
from callfuse.dialects.bedrock.answer import calls_of, reasons
from callfuse.dialects.bedrock.writer import ConverseWriter
from callfuse.dialects.declared import DescribedTool, described_under, entries, name_of
from callfuse.dialects.history import without_parts
from callfuse.dialects.message_list import KeyedResult, ResultBlocks
from callfuse.dialects.shapes import list_of
from callfuse.model import ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.aws_events import MEDIA_TYPE, event
from callfuse.wire.jsontext import Edit, Path, dumps


class ConverseRequest(ResultBlocks):
    """A request to Bedrock's Converse."""

    __slots__ = ("_more", "_tools")

    _alternates = True
    _text_type = None
    _block_path = ("toolResult", "content")
    _stream_type = MEDIA_TYPE

    def __init__(self, body: bytes, payload: Payload, target: str) -> None:
        super().__init__(body, payload, target)
        self.model = model_in(target)
        self.stream = target.partition("?")[0].rstrip("/").endswith("-stream")
        config = payload.get("toolConfig")
        self._tools: Payload = config if isinstance(config, dict) else {}
        more = payload.get("additionalModelRequestFields")
        self._more: Payload = more if isinstance(more, dict) else {}
        config = payload.get("outputConfig")
        self.structured = isinstance(config, dict) and isinstance(config.get("textFormat"), dict)
        limits = payload.get("inferenceConfig")
        limit = limits.get("maxTokens") if isinstance(limits, dict) else None
        self.probe = limit == 1 or not self._tools.get("tools")

    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        return calls_of(message.get("content"), self._exact, position)

    @staticmethod
    def _read_result(block: Any) -> KeyedResult | None:
        result = block.get("toolResult") if type(block) is dict else None
        if type(result) is not dict:
            return None
        status = result.get("status")
        return str(result.get("toolUseId") or ""), (result.get("content"), status == "error" if status else None)

    def _tool_names(self) -> Iterator[Any]:
        """Yield the names of the tools, then of the tools in the model's own format, e.g. Anthropic's computer tool."""
        for tool in entries(self._tools.get("tools")):
            if not isinstance(tool, dict):
                yield None
            elif "cachePoint" not in tool:
                yield name_of(tool.get("toolSpec") or tool.get("systemTool"))
        for tool in entries(self._more.get("tools")):
            yield name_of(tool)

    def described_tools(self) -> Iterator[DescribedTool]:
        """Yield the tools that have a specification."""
        return described_under("toolSpec", self._tools.get("tools"), ("toolConfig", "tools"))

    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> list[bytes]:
        results = [
            {"toolResult": {"toolUseId": reply.call.id, "content": [{"text": reply.text}], "status": "error"}}
            for reply in replies
        ]
        return [dumps({"role": "user", "content": results})]

    def _without_reasoning(self, message: Any, path: Path, reader: str) -> Iterator[Edit]:
        return without_parts(message, path, reasons)

    def _without_reasoning_setting(self) -> list[Edit]:
        """Return the edits that turn off Claude's thinking with a budget: the history would need Claude's."""
        thinking = self._more.get("thinking")
        enabled = isinstance(thinking, dict) and thinking.get("type") == "enabled"
        return [Edit(("additionalModelRequestFields", "thinking"), None)] if enabled else []

    def _forbid_calls(self) -> list[Edit]:
        """Raise CannotReplay: no tool choice of Converse forbids tools, and a history with calls needs tools."""
        raise CannotReplay("toolChoice")

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `auto`; `any` stays if another tool can be called."""
        choice = self._tools.get("toolChoice")
        kinds = choice if isinstance(choice, dict) else {}
        if "tool" in kinds or ("any" in kinds and len(list_of(self._tools.get("tools"))) < 2):
            return [Edit(("toolConfig", "toolChoice"), b'{"auto":{}}')]
        return []

    def writer(self, *, usage: str, form: Format | None = None) -> ConverseWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return ConverseWriter(structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """Return an answer with this text."""
        message = {"role": "assistant", "content": [{"text": text}]}
        usage = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
        return dumps(
            {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 0}}
        )

    def _own_stream(self, text: str) -> bytes:
        begun = event({"messageStart": {"role": "assistant"}})
        return begun + self.writer(usage="last").close({0: Block(text)})
