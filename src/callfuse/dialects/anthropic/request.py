"""Requests of Anthropic messages: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.anthropic.read import is_client_call
from callfuse.dialects.anthropic.reasoning import not_thinking, thinks
from callfuse.dialects.anthropic.whole import splice_whole, thin_whole
from callfuse.dialects.anthropic.write import MessagesWriter, event
from callfuse.dialects.base import Attempt, Block, Manner, Note
from callfuse.dialects.declared import entries, is_declared, name_of
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts, without_parts
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, ExactAt, apply, dumps, loads


class MessagesRequest(ParsedBody):
    """A parsed body and the bytes it came from."""

    __slots__ = ("_messages", "_payload", "choices", "length", "model", "probe", "stream", "structured")

    continuing: Final = None

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = self._came = body
        self._take(payload)
        self.length = len(self._messages)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        self.choices = 1
        self.probe = payload.get("max_tokens") == 1 or not payload.get("tools")
        self.structured = False

    def _take(self, payload: Payload) -> None:
        self._payload = payload
        self._messages: list[Any] = payload["messages"]

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._payload, self._messages

    def opening(self) -> Iterator[bytes]:
        """The system prompt and the first user message."""
        yield from texts(self._payload.get("system"))
        for message in self._messages:
            if isinstance(message, dict) and message.get("role") == "user":
                yield from texts(message.get("content"))
                return

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` stands, and its digest."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            message = self._messages[position]
            if isinstance(message, dict) and message.get("role") == "user" and _is_real_user(message):
                return position, digest_of(texts(message.get("content")))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message.

        The vendor joins messages of one role that follow each other: results are those of every call before them.
        """
        results: list[tuple[str, Result]] = []
        answered = False
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role == "assistant":
                answered = True
                if calls := self._calls(position):
                    yield Round(pair(calls, results), position)
            elif role == "user":
                content = message.get("content")
                blocks = content if type(content) is list else ()
                found = [
                    (str(block.get("tool_use_id") or ""), Result(block.get("content"), _flag(block)))
                    for block in blocks
                    if type(block) is dict and block.get("type") == "tool_result"
                ]
                real = not 0 < len(found) == len(blocks) and _is_real_user(message)
                if real:
                    yield None
                results = found if real or answered else found + results
                answered = False

    def calls(self) -> Iterator[ToolCall]:
        """Every call of the history, without its result."""
        for position, message in enumerate(self._messages):
            if isinstance(message, dict) and message.get("role") == "assistant":
                yield from self._calls(position)

    def tools(self) -> Iterator[str | None]:
        """The tool that each round calls, newest first; None for a real user message."""
        for message in reversed(self._messages):
            role = message.get("role") if isinstance(message, dict) else None
            if role == "assistant":
                content = message.get("content")
                blocks = content if type(content) is list else ()
                if names := {str(block.get("name") or "") for block in blocks if is_client_call(block)}:
                    yield names.pop() if len(names) == 1 else ""
            elif role == "user" and _is_real_user(message):
                yield None

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        return is_declared(name, self._tool_names())

    def _tool_names(self) -> Iterator[Any]:
        """The tools, then those that came with the messages. Toolsets, of MCP servers and others, have no name."""
        if self._payload.get("mcp_servers"):
            yield None
        for tool in entries(self._payload.get("tools")):
            yield name_of(tool)
        for message in self._messages:
            if isinstance(message, dict) and message.get("role") == "system":
                content = message.get("content")
                for block in content if isinstance(content, list) else ():
                    if (definition := _added(block)) is not None:
                        yield name_of(definition)

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the content of each named call's tool_result."""
        found: dict[tuple[int, int], str] = {}
        for note in notes:
            listed = self._results_after(note.position)
            at = result_at(self._calls(note.position), [id_ for _, id_ in listed], note.call)
            if at is not None:
                key = listed[at][0]
                found[key] = f"{found[key]}\n\n{note.text}" if key in found else note.text
        edits: list[Edit] = []
        for (place, block), text in found.items():
            content = self._messages[place]["content"][block].get("content")
            edits += grown(("messages", place, "content", block, "content"), content, text)
        return apply(self.body, edits)

    def _results_after(self, position: int) -> list[tuple[tuple[int, int], str]]:
        """The results of the round at `position`, in however many messages: (message, block) and id."""
        listed: list[tuple[tuple[int, int], str]] = []
        heard = False
        for place in range(position + 1, self.length):
            message = self._messages[place]
            role = message.get("role") if isinstance(message, dict) else None
            if role == "assistant" and heard:
                break
            heard |= role == "user"
            listed += [((place, block), id_) for block, id_, _ in _results(message)]
        return listed

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn and a user message of tool results at the end of the messages."""
        new: list[bytes] = []
        for turn, replies, model in attempts:
            results = [
                {"type": "tool_result", "tool_use_id": reply.call.id, "is_error": True, "content": reply.text}
                for reply in replies
            ]
            new.append(turn if model == manner.model else apply(turn, without_parts(loads(turn), (), thinks)))
            new.append(dumps({"role": "user", "content": results}))
        edits = [Edit(("messages", END), b",".join(new))]
        edits += [Edit(("tool_choice",), b'{"type":"none"}')] if manner.text_only else self._loosened()
        if manner.model:
            edits += [Edit(("model",), dumps(manner.model))] if self.model else []  # clouds name it in the path
            edits += not_thinking(self._payload)
            for at, message in enumerate(self._messages):
                edits += without_parts(message, ("messages", at), thinks)
        return apply(self.body, edits)

    def writer(self, *, usage: str) -> MessagesWriter:
        """A writer for the stream that answers this request."""
        return MessagesWriter(summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """A message that says this text."""
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

    def aside(self, text: str) -> OwnAnswer:
        """A message that no model has made, whole or as events."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        begun = event({"type": "message_start", "message": self._own_head()})
        return OwnAnswer(EVENT_STREAM, begun + self.writer(usage="last").close({0: Block(text)}))

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in a message."""
        message = self._messages[at]
        if not isinstance(message, dict) or message.get("role") != "user" or not _is_real_user(message):
            return None
        return typed(("messages", at), message.get("content"))

    def own_text(self, at: int) -> str | None:
        """What callfuse says in an assistant message."""
        message = self._messages[at]
        is_model = isinstance(message, dict) and message.get("role") == "assistant"
        return own_text(message.get("content")) if is_model else None

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum", foreign=foreign)

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `auto`; `any` stays while another tool is open."""
        choice = self._payload.get("tool_choice")
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind == "tool":
            return [Edit(("tool_choice", "type"), b'"auto"'), Edit(("tool_choice", "name"), None)]
        if kind == "any" and len(self._payload.get("tools") or ()) < 2:
            return [Edit(("tool_choice", "type"), b'"auto"')]
        return []

    def _calls(self, position: int) -> tuple[ToolCall, ...]:
        """The client's calls in the assistant message at `position`."""
        content = self._messages[position].get("content")
        if type(content) is not list:
            return ()
        return tuple(
            [
                ToolCall(
                    str(block.get("id") or ""),
                    str(block.get("name") or ""),
                    block.get("input"),
                    exact=ExactAt(self.body, "messages", position, "content", at, "input"),
                )
                for at, block in enumerate(content)
                if is_client_call(block)
            ]
        )


def _flag(block: Payload) -> bool | None:
    """Whether a result is an error, as the client has it."""
    flag = block.get("is_error")
    return None if flag is None else bool(flag)


def _results(message: Any) -> Iterator[tuple[int, str, Payload]]:
    """The tool results of a message: place, id and block."""
    content = message.get("content") if isinstance(message, dict) else None
    for at, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield at, str(block.get("tool_use_id") or ""), block


def _added(block: Any) -> Any:
    """The tool that a block of a system message defines; None where it defines none."""
    tool = block.get("tool") if isinstance(block, dict) and block.get("type") == "tool_addition" else None
    return tool.get("definition") if isinstance(tool, dict) else None


def _is_real_user(message: Payload) -> bool:
    """Whether a person speaks in a message of the user's: not callfuse, no harness's reminder, and not a tool."""
    content = message.get("content")
    if type(content) is list:
        if all(map(_is_result, content)):  # as nearly all are
            return False
        content = [block for block in content if not _is_result(block)]
    return not is_own_or_reminder(content)


def _is_result(block: Any) -> bool:
    return type(block) is dict and block.get("type") == "tool_result"
