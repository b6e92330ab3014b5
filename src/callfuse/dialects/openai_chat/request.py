"""Requests of OpenAI chat completions: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from callfuse.dialects.base import Attempt, Block, Manner, Note, Reply, Writer
from callfuse.dialects.declared import entries, is_declared, name_of
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts
from callfuse.dialects.openai_chat.read import calls_of, tool_of
from callfuse.dialects.openai_chat.reasoning import without_reasoning
from callfuse.dialects.openai_chat.whole import splice_whole, thin_whole
from callfuse.dialects.openai_chat.write import ChatWriter
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads

_NO_TOKENS: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_MOST_CHOICES: Final = 128


class ChatRequest(ParsedBody):
    """A parsed body and the bytes it came from."""

    __slots__ = (
        "_messages",
        "_payload",
        "choices",
        "length",
        "model",
        "probe",
        "stream",
    )

    continuing: Final = None

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = self._came = body
        self._take(payload)
        self.length = len(self._messages)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        choices = payload.get("n")
        self.choices = choices if isinstance(choices, int) else 1
        limit = payload.get("max_completion_tokens") or payload.get("max_tokens")
        self.probe = limit == 1 or not (payload.get("tools") or payload.get("functions"))

    @property
    def structured(self) -> bool:
        """Whether the answer must fit a schema."""
        form = self._payload.get("response_format")
        return isinstance(form, dict) and form.get("type") in ("json_schema", "json_object")

    def _take(self, payload: Payload) -> None:
        self._payload = payload
        self._messages: list[Any] = payload["messages"]

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._payload, self._messages

    def opening(self) -> list[bytes]:
        """System and developer texts up to and with the first user message."""
        found: list[bytes] = []
        for message in self._messages:
            role = message.get("role") if isinstance(message, dict) else None
            if role in ("system", "developer", "user"):
                found.append(role.encode())
                found += texts(message.get("content"))
            if role == "user":
                break
        return found

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` stands, and its digest."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            message = self._messages[position]
            if isinstance(message, dict) and message.get("role") == "user" and self._is_real_user(position, message):
                return position, digest_of(texts(message.get("content")))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        results: list[tuple[str, Result]] = []
        attached: list[Any] = []
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role == "tool":
                content = message.get("content")
                results.append(
                    (str(message.get("tool_call_id") or ""), Result([content, *attached] if attached else content))
                )
                attached = []
            elif role == "function":
                results.append(("", Result(message.get("content"))))
            elif role == "assistant":
                if calls := calls_of(message):
                    yield Round(pair(calls, results[::-1]), position)
                results = []
            elif role == "user" and self._is_real_user(position, message):
                yield None
                results = []
            elif role == "user" and self._is_attachment(position, message.get("content")):
                attached = message["content"]

    def calls(self) -> Iterator[ToolCall]:
        """Every call of the history, without its result."""
        for message in self._messages:
            if isinstance(message, dict) and message.get("role") == "assistant":
                yield from calls_of(message)

    def tools(self) -> Iterator[str | None]:
        """The tool that each round calls, newest first; None for a real user message."""
        position = self.length
        for message in reversed(self._messages):
            position -= 1
            role = message.get("role") if isinstance(message, dict) else None
            if role == "assistant":
                if (tool := tool_of(message)) is not None:
                    yield tool
            elif role == "user" and self._is_real_user(position, message):
                yield None

    def _is_real_user(self, position: int, message: Payload) -> bool:
        """Whether a person speaks in a user message: not callfuse, no harness's reminder, not the images of a tool."""
        content = message.get("content")
        return not (is_own_or_reminder(content) or self._is_attachment(position, content))

    def _is_attachment(self, position: int, content: Any) -> bool:
        """Whether a user message carries images for the tool message before it, which cannot hold them."""
        if not isinstance(content, list):
            return False
        before = self._messages[position - 1] if position else None
        if not isinstance(before, dict) or before.get("role") != "tool":
            return False
        return not any(isinstance(part, dict) and part.get("type") == "text" for part in content)

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        tools = entries(self._payload.get("tools"))
        for tool in tools:
            if _name_of_tool(tool) == name:  # as most calls' tools are
                return True
        functions = entries(self._payload.get("functions"))
        return is_declared(name, chain(map(_name_of_tool, tools), map(name_of, functions)))

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the content of each named call's tool message."""
        edits: list[Edit] = []
        for place, text in self._results_of(notes).items():
            path = ("messages", place, "content")
            edits += grown(path, self._messages[place].get("content"), text)
        return apply(self.body, edits)

    def _results_of(self, notes: Sequence[Note]) -> dict[int, str]:
        """The indexes of the messages that hold the results, with the texts for them."""
        found: dict[int, str] = {}
        for note in notes:
            calls = calls_of(self._messages[note.position])
            places = []
            for place in range(note.position + 1, self.length):
                message = self._messages[place]
                if not isinstance(message, dict) or message.get("role") not in ("tool", "function"):
                    break
                places.append(place)
            ids = [str(self._messages[place].get("tool_call_id") or "") for place in places]
            at = result_at(calls, ids, note.call)
            if at is not None:
                found[places[at]] = f"{found[places[at]]}\n\n{note.text}" if places[at] in found else note.text
        return found

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn and a tool message for each of its calls at the end of the messages."""
        reader = manner.model or self.model
        new: list[bytes] = []
        for turn, replies, model in attempts:
            own = model == manner.model
            new += [turn if own else apply(turn, without_reasoning(loads(turn), (), reader)), *_told(turn, replies)]
        edits = [Edit(("messages", END), b",".join(new))]
        edits += self._shut() if manner.text_only else self._loosened()
        if manner.model:
            edits += [Edit(("model",), dumps(manner.model))] if self.model else []  # Azure names it in the path
            for at, message in enumerate(self._messages):
                if isinstance(message, dict) and message.get("role") == "assistant":
                    edits += without_reasoning(message, ("messages", at), reader)
        return apply(self.body, edits)

    def writer(self, *, usage: str) -> Writer:
        """A writer for the stream that answers this request."""
        options = self._payload.get("stream_options")
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        return ChatWriter(structured=self.structured, wants_usage=wants_usage, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """A completion that says this text."""
        message = {"role": "assistant", "content": None if self.structured else text}
        message["refusal"] = text if self.structured else None
        choice = {"message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": "chatcmpl-callfuse", "object": "chat.completion", "created": 0, "model": self.model}
        return dumps(head | {"choices": [{"index": at} | choice for at in self._own_choices()], "usage": _NO_TOKENS})

    def aside(self, text: str) -> OwnAnswer:
        """A completion that no model has made, whole or in chunks."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        head = {"id": "chatcmpl-callfuse", "object": "chat.completion.chunk", "created": 0, "model": self.model}
        writer = self.writer(usage="last")
        choices = [{"index": at, "delta": {}} for at in self._own_choices()]
        writer.sent(head | {"choices": choices, "usage": _NO_TOKENS})
        return OwnAnswer(EVENT_STREAM, writer.close({at: Block(text) for at in self._own_choices()}))

    def _own_choices(self) -> range:
        """As many as are asked for; the vendor knows no more than 128."""
        return range(min(max(self.choices, 1), _MOST_CHOICES))

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in a message."""
        message = self._messages[at]
        if not isinstance(message, dict) or message.get("role") != "user" or not self._is_real_user(at, message):
            return None
        return typed(("messages", at), message.get("content"))

    def own_text(self, at: int) -> str | None:
        """What callfuse says in an assistant message."""
        message = self._messages[at]
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return None
        calls = bool(message.get("tool_calls") or message.get("function_call"))
        return own_text(message.get("content") or message.get("refusal"), more=calls)

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks, structured=self.structured)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum", foreign=foreign)

    def _shut(self) -> list[Edit]:
        """No tool may be called."""
        shut = (("tool_choice", "tools"), ("function_call", "functions"))
        return [Edit((key,), b'"none"') for key, tools in shut if self._payload.get(tools)]

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `auto`; `required` stays while another tool is open."""
        edits = []
        for key, tools in (("tool_choice", "tools"), ("function_call", "functions")):
            choice = self._payload.get(key)
            named = isinstance(choice, dict) and choice.get("type") != "allowed_tools"
            if named or (choice == "required" and len(self._payload.get(tools) or ()) < 2):
                edits.append(Edit((key,), b'"auto"'))
        return edits


def _name_of_tool(tool: Any) -> Any:
    """The name of an entry of the tools; None where it has none."""
    try:
        return tool["function"]["name"]
    except (KeyError, TypeError):
        return name_of(tool.get("custom") or tool) if isinstance(tool, dict) else None


def _told(turn: bytes, replies: Sequence[Reply]) -> Iterator[bytes]:
    """The messages that answer the calls of a turn, which may be of the legacy kind."""
    legacy = b'"function_call":' in turn and b'"tool_calls":' not in turn
    for reply in replies:
        whose = {"name": reply.call.name} if legacy else {"tool_call_id": reply.call.id}
        yield dumps({"role": "function" if legacy else "tool"} | whose | {"content": reply.text})
