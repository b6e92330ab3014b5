"""Requests of OpenAI chat completions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

from callfuse.dialects.ask_again import Reply
from callfuse.dialects.base import AnswerWriter, Block
from callfuse.dialects.declared import DescribedTool, described, described_under, entries, name_of
from callfuse.dialects.history import is_own_or_reminder
from callfuse.dialects.message_list import KeyedResult, ResultMessages
from callfuse.dialects.nudges import with_media
from callfuse.dialects.openai_chat.answer import calls_of
from callfuse.dialects.openai_chat.reasoning import without_reasoning
from callfuse.dialects.openai_chat.writer import ChatWriter
from callfuse.model import ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, Path, apply, dumps, loads

_NO_TOKENS: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_MOST_CHOICES: Final = 128
_CHOICES: Final = (("tool_choice", "tools"), ("function_call", "functions"))
"""The settings that choose a tool, each with the list that it chooses from."""


class ChatRequest(ResultMessages):
    """A request for a chat completion, including requests with legacy functions."""

    __slots__ = ()

    _speaking: ClassVar = ("user", "tool", "function")
    _name_keys: ClassVar[tuple[str, ...]] = ("name",)

    def __init__(self, body: bytes, payload: Payload, target: str = "") -> None:
        super().__init__(body, payload, target)
        choices = payload.get("n")
        self.choices = choices if isinstance(choices, int) else 1
        limit = payload.get("max_completion_tokens") or payload.get("max_tokens")
        self.probe = limit == 1 or not (payload.get("tools") or payload.get("functions"))
        form = payload.get("response_format")
        self.structured = isinstance(form, dict) and form.get("type") in ("json_schema", "json_object")

    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        return calls_of(message)

    def _key(self, message: Payload) -> str:
        return str(message.get("tool_call_id") or "")

    def _results(self, position: int, message: Payload, role: Any) -> list[KeyedResult]:
        if role == "user":
            return []
        id_, content = message.get("tool_call_id"), message.get("content")
        behind: Any = self._messages[position + 1] if position + 1 < self.length else None
        if type(behind) is dict and behind.get("role") == "user" and (shown := self._shown_behind(position)):
            content = with_media(content, shown)
        return [(id_ if type(id_) is str else str(id_ or ""), (content, None))]

    def _is_real_user(self, position: int, message: Payload) -> bool:
        content = message.get("content")
        if position and _is_attachment(message) and _role(self._messages[position - 1]) == "tool":
            return False
        return not is_own_or_reminder(content)

    def _tool_names(self) -> Iterable[Any]:
        tools, functions = entries(self._payload.get("tools")), self._payload.get("functions")
        try:
            names = [tool["function"]["name"] for tool in tools]
        except (KeyError, TypeError):  # not all of them are functions
            names = [*map(_name_of_tool, tools)]
        return [*names, *map(name_of, entries(functions))] if functions else names

    def described_tools(self) -> Iterator[DescribedTool]:
        """Yield functions, custom tools and legacy functions."""
        tools, functions = self._payload.get("tools"), self._payload.get("functions")
        for key in ("function", "custom"):
            yield from described_under(key, tools, ("tools",))
        for at, function in enumerate(functions if isinstance(functions, list) else ()):
            yield from described(function, ("functions", at))

    def _in_clients_hand(self, turn: bytes) -> bytes:
        """Write an empty content as in the client's newest turn with calls and no text, which this server has accepted:
        some refuse null (llama-cpp-python), others a missing content. Without such a turn, remove the content."""
        message: Payload = loads(turn)
        if "content" not in message or message["content"]:
            return turn
        for said in reversed(self._messages):
            if _role(said) == "assistant" and not said.get("content") and calls_of(said):
                spelled = dumps(said["content"]) if "content" in said else None
                return apply(turn, [Edit(("content",), spelled)])
        return apply(turn, [Edit(("content",), None)])

    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> Iterator[bytes]:
        message: Payload = loads(turn)
        legacy = bool(message.get("function_call")) and not message.get("tool_calls")
        for reply in replies:
            whose = {"name": reply.call.name} if legacy else {"tool_call_id": reply.call.id}
            yield dumps({"role": "function" if legacy else "tool"} | whose | {"content": reply.text})

    def _without_reasoning(self, message: Any, path: Path, reader: str) -> Iterable[Edit]:
        return without_reasoning(message, path, reader) if _role(message) == "assistant" else ()

    def _forbid_calls(self) -> list[Edit]:
        return [Edit((key,), b'"none"') for key, tools in _CHOICES if self._payload.get(tools)]

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `auto`; `required` stays with several tools."""
        edits = []
        for key, tools in _CHOICES:
            choice = self._payload.get(key)
            named = isinstance(choice, dict) and choice.get("type") != "allowed_tools"
            if named or (choice == "required" and len(self._payload.get(tools) or ()) < 2):
                edits.append(Edit((key,), b'"auto"'))
        return edits

    def writer(self, *, usage: str, form: Format | None = None) -> AnswerWriter:
        """Return a writer for the answer to this request."""
        options = self._payload.get("stream_options")
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        return ChatWriter(structured=self.structured, wants_usage=wants_usage, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """Return a completion with this text."""
        message = {"role": "assistant", "content": None if self.structured else text}
        message["refusal"] = text if self.structured else None
        choice = {"message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": "chatcmpl-callfuse", "object": "chat.completion", "created": 0, "model": self.model}
        return dumps(head | {"choices": [{"index": at} | choice for at in self._own_choices()], "usage": _NO_TOKENS})

    def _own_stream(self, text: str) -> bytes:
        head = {"id": "chatcmpl-callfuse", "object": "chat.completion.chunk", "created": 0, "model": self.model}
        writer = self.writer(usage="last")
        choices = [{"index": at, "delta": {}} for at in self._own_choices()]
        writer.note_sent(head | {"choices": choices, "usage": _NO_TOKENS})
        return writer.close({at: Block(text) for at in self._own_choices()})

    def _own_choices(self) -> range:
        """Return the indexes of as many choices as the request asks for, at most 128, the vendor's own limit."""
        return range(min(max(self.choices, 1), _MOST_CHOICES))


def _role(message: Any) -> Any:
    return message.get("role") if type(message) is dict else None


def _is_attachment(message: Payload) -> bool:
    """Whether the content of a user message is a list of parts without a text."""
    content = message.get("content")
    return type(content) is list and not any(type(part) is dict and part.get("type") == "text" for part in content)


def _name_of_tool(tool: Any) -> Any:
    """Return the name of an entry in the list of tools; None if it has none."""
    try:
        return tool["function"]["name"]
    except (KeyError, TypeError):
        return name_of(tool.get("custom") or tool) if isinstance(tool, dict) else None
