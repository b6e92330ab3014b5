"""Requests of Ollama chats: the rounds with their results, and changes that leave the rest alone.

Results name their call by id in newer clients, by the tool's name in others, in old ones by nothing but their order.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.base import Attempt, Block, Manner, Note
from callfuse.dialects.declared import entries, is_declared, name_of
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts
from callfuse.dialects.ollama.read import calls_of
from callfuse.dialects.ollama.whole import splice_whole, thin_whole
from callfuse.dialects.ollama.write import NO_TIME, ChatWriter
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, ExactAt, apply, dumps, loads


class ChatRequest(ParsedBody):
    """A parsed body and the bytes it came from."""

    __slots__ = ("_messages", "_payload", "choices", "length", "model", "probe", "stream", "structured")

    continuing: Final = None

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = self._came = body
        self._take(payload)
        self.length = len(self._messages)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is not False
        self.choices = 1
        options = payload.get("options")
        limit = options.get("num_predict") if isinstance(options, dict) else None
        self.probe = limit == 1 or not payload.get("tools")
        self.structured = bool(payload.get("format"))

    def _take(self, payload: Payload) -> None:
        self._payload = payload
        self._messages: list[Any] = payload["messages"]

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._payload, self._messages

    def opening(self) -> Iterator[bytes]:
        """System texts up to and with the first user message."""
        for message in self._messages:
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role in ("system", "user"):
                yield str(role).encode()
                yield from texts(message.get("content"))
            if role == "user":
                return

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` stands, and its digest."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            message = self._messages[position]
            if isinstance(message, dict) and _is_real_user(message):
                return position, digest_of(texts(message.get("content")))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        results: list[Payload] = []
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role == "tool":
                results.append(message)
            elif role == "assistant":
                if calls := self._calls(position):
                    results.reverse()
                    keys, ids = _keys(calls, results)
                    paired = pair(calls, list(zip(ids, map(_result, results), strict=True)), keys)
                    yield Round(paired, position)
                results = []
            elif role == "user" and _is_real_user(message):
                yield None
                results = []

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        tools = entries(self._payload.get("tools"))
        return is_declared(name, (name_of(tool.get("function")) if isinstance(tool, dict) else None for tool in tools))

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the content of each named call's tool message."""
        edits: list[Edit] = []
        for place, text in self._results_of(notes).items():
            edits += grown(("messages", place, "content"), self._messages[place].get("content"), text)
        return apply(self.body, edits)

    def _results_of(self, notes: Sequence[Note]) -> dict[int, str]:
        """The indexes of the messages that hold the results, with the texts for them."""
        found: dict[int, str] = {}
        for note in notes:
            calls = self._calls(note.position)
            places = []
            for place in range(note.position + 1, self.length):
                message = self._messages[place]
                if not isinstance(message, dict) or message.get("role") != "tool":
                    break
                places.append(place)
            keys, ids = _keys(calls, [self._messages[place] for place in places])
            at = result_at(calls, ids, note.call, keys)
            if at is not None:
                found[places[at]] = f"{found[places[at]]}\n\n{note.text}" if places[at] in found else note.text
        return found

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn and a tool message for each of its calls at the end of the messages. Ollama knows no
        tool choice: where only text is wanted, the tools go."""
        new: list[bytes] = []
        for turn, replies, model in attempts:
            new.append(turn if model == manner.model else apply(turn, _without_thinking(loads(turn), ())))
            for reply in replies:
                id_ = {"tool_call_id": reply.call.id} if reply.call.id else {}
                new.append(dumps({"role": "tool", "tool_name": reply.call.name, **id_, "content": reply.text}))
        edits = [Edit(("messages", END), b",".join(new))]
        edits += [Edit(("tools",), None)] if manner.text_only else []
        if manner.model:
            edits.append(Edit(("model",), dumps(manner.model)))
            for at, message in enumerate(self._messages):
                edits += _without_thinking(message, ("messages", at))
        return apply(self.body, edits)

    def writer(self, *, usage: str) -> ChatWriter:
        """A writer for the stream that answers this request."""
        return ChatWriter(structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """An answer that says this text."""
        message = {"role": "assistant", "content": text}
        head = {"model": self.model, "created_at": NO_TIME}
        return dumps(head | {"message": message, "done": True, "done_reason": "stop"})

    def aside(self, text: str) -> OwnAnswer:
        """An answer that no model has made, whole or as lines."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        writer = self.writer(usage="last")
        writer.sent({"model": self.model, "created_at": NO_TIME})
        return OwnAnswer(b"application/x-ndjson", writer.close({0: Block(text)}))

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in a message."""
        message = self._messages[at]
        if not isinstance(message, dict) or not _is_real_user(message):
            return None
        return typed(("messages", at), message.get("content"), more=bool(message.get("images")))

    def own_text(self, at: int) -> str | None:
        """What callfuse says in an assistant message."""
        message = self._messages[at]
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return None
        return own_text(message.get("content"), more=bool(message.get("tool_calls")))

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum", foreign=foreign)

    def _calls(self, position: int) -> tuple[ToolCall, ...]:
        """The calls of the assistant message at `position`."""
        exact = partial(ExactAt, self.body, "messages", position, "tool_calls")
        return tuple(calls_of(self._messages[position], exact))


def _without_thinking(message: Any, path: tuple[str | int, ...]) -> list[Edit]:
    """The edit that leaves a message without thinking."""
    return [Edit((*path, "thinking"), None)] if isinstance(message, dict) and "thinking" in message else []


def _keys(calls: Sequence[ToolCall], results: Sequence[Payload]) -> tuple[list[str], list[str]]:
    """What calls and results know each other by: ids where results have them, else names; empty where by nothing."""
    known = {call.id for call in calls if call.id}
    if any(result.get("tool_call_id") in known for result in results):
        return [call.id for call in calls], [str(result.get("tool_call_id") or "") for result in results]
    names = {call.name for call in calls}
    given = [result.get("tool_name") or result.get("name") for result in results]
    return [call.name for call in calls], [str(name) if name in names else "" for name in given]


def _result(message: Payload) -> Result:
    """What a tool message reports: its text, and the images beside it."""
    content = message.get("content")
    images = message.get("images")
    if not isinstance(images, list) or not images:
        return Result(content)
    return Result([content, *({"type": "image", "data": image} for image in images)])


def _is_real_user(message: Payload) -> bool:
    """Whether a person has spoken here: not callfuse, and not a harness's reminder."""
    if message.get("role") != "user":
        return False
    return not is_own_or_reminder(message.get("content"))
