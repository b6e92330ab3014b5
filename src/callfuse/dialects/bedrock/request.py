"""Requests of Bedrock's Converse: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.base import AskError, Attempt, Block, Manner, Note, Writer
from callfuse.dialects.bedrock.events import CONTENT_TYPE, encoded
from callfuse.dialects.bedrock.read import call_of, calls_in
from callfuse.dialects.bedrock.whole import reasons, splice_whole, thin_whole
from callfuse.dialects.declared import entries, is_declared, name_of
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts, without_parts
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, ExactAt, apply, dumps, loads


class UnreadStreamError(TypeError):
    """A stream of a format that callfuse does not read was to be read."""


class ConverseRequest(ParsedBody):
    """A parsed body and the bytes it came from; the model stands in the path."""

    __slots__ = (
        "_messages",
        "_more",
        "_system",
        "_tools",
        "choices",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    continuing: Final = None

    def __init__(self, body: bytes, payload: Payload, target: str) -> None:
        self.body = self._came = body
        self._take(payload)
        self.length = len(self._messages)
        path = target.partition("?")[0]
        self.model = path.rpartition("/")[0].partition("/model/")[2]
        self.stream = path.endswith("-stream")
        self.choices = 1
        limits = payload.get("inferenceConfig")
        limit = limits.get("maxTokens") if isinstance(limits, dict) else None
        self.probe = limit == 1 or not self._tools.get("tools")
        self.structured = False

    def _take(self, payload: Payload) -> None:
        self._messages: list[Any] = payload["messages"]
        self._system = payload.get("system")
        config = payload.get("toolConfig")
        self._tools: Payload = config if isinstance(config, dict) else {}
        more = payload.get("additionalModelRequestFields")
        self._more: Payload = more if isinstance(more, dict) else {}

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._messages, self._more, self._system, self._tools

    def opening(self) -> Iterator[bytes]:
        """The system prompt and the first user message."""
        yield from texts(self._system)
        for message in self._messages:
            if isinstance(message, dict) and message.get("role") == "user":
                yield from texts(message.get("content"))
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
        results: list[tuple[str, Result]] = []
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if not isinstance(message, dict):
                continue
            if message.get("role") == "assistant":
                if calls := self._calls(position):
                    yield Round(pair(calls, results), position)
                results = []
            elif message.get("role") == "user":
                if _is_real_user(message):
                    yield None
                    results = []
                results[:0] = [(id_, _outcome(result)) for _, id_, result in _results(message)]

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        return is_declared(name, self._tool_names())

    def _tool_names(self) -> Iterator[Any]:
        """The tools, then those in the model's own format (Anthropic's computer, say)."""
        for tool in entries(self._tools.get("tools")):
            if not isinstance(tool, dict):
                yield None
            elif "cachePoint" not in tool:
                yield name_of(tool.get("toolSpec") or tool.get("systemTool"))
        for tool in entries(self._more.get("tools")):
            yield name_of(tool)

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the content of each named call's result."""
        found: dict[tuple[int, int], str] = {}
        for note in notes:
            listed = self._results_after(note.position)
            at = result_at(self._calls(note.position), [id_ for _, id_ in listed], note.call)
            if at is not None:
                key = listed[at][0]
                found[key] = f"{found[key]}\n\n{note.text}" if key in found else note.text
        edits: list[Edit] = []
        for (place, block), text in found.items():
            content = self._messages[place]["content"][block]["toolResult"].get("content")
            edits += _grown(("messages", place, "content", block, "toolResult", "content"), content, text)
        return apply(self.body, edits)

    def _results_after(self, position: int) -> list[tuple[tuple[int, int], str]]:
        """The results of the round at `position`: (message, block) and id."""
        listed = []
        for place in range(position + 1, self.length):
            message = self._messages[place]
            if isinstance(message, dict) and message.get("role") == "assistant":
                break
            listed += [((place, block), id_) for block, id_, _ in _results(message)]
        return listed

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn and a user message of tool results at the end of the messages.

        Converse has no tool choice that forbids tools, and refuses a history with calls where no tools are given.
        """
        if manner.text_only:
            raise AskError("toolChoice")
        new: list[bytes] = []
        for turn, replies, model in attempts:
            results = [
                {"toolResult": {"toolUseId": reply.call.id, "content": [{"text": reply.text}], "status": "error"}}
                for reply in replies
            ]
            new.append(turn if model == manner.model else apply(turn, without_parts(loads(turn), (), reasons)))
            new.append(dumps({"role": "user", "content": results}))
        edits = [Edit(("messages", END), b",".join(new)), *self._loosened()]
        if manner.model:
            edits += self._not_reasoning()
            for at, message in enumerate(self._messages):
                edits += without_parts(message, ("messages", at), reasons)
        return apply(self.body, edits)

    def _not_reasoning(self) -> list[Edit]:
        """The edit that turns off Claude's thinking where it is on by a budget: it demands its own in the history."""
        thinking = self._more.get("thinking")
        enabled = isinstance(thinking, dict) and thinking.get("type") == "enabled"
        return [Edit(("additionalModelRequestFields", "thinking"), None)] if enabled else []

    def writer(self, *, usage: str) -> Writer:
        """There is none: Bedrock's streams are binary, and none is ever taken for readable."""
        raise UnreadStreamError("vnd.amazon.eventstream")

    def own_answer(self, text: str) -> bytes:
        """An answer that says this text."""
        message = {"role": "assistant", "content": [{"text": text}]}
        usage = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
        return dumps(
            {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 0}}
        )

    def aside(self, text: str) -> OwnAnswer:
        """An answer that no model has made, whole or as an event stream."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        at = {"contentBlockIndex": 0}
        usage = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
        events: list[Payload] = [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": at | {"delta": {"text": text}}},
            {"contentBlockStop": at},
            {"messageStop": {"stopReason": "end_turn"}},
            {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}},
        ]
        return OwnAnswer(CONTENT_TYPE, b"".join(map(encoded, events)))

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in a message."""
        message = self._messages[at]
        if not isinstance(message, dict) or not _is_real_user(message):
            return None
        return typed(("messages", at), message.get("content"), needs_answer=True)

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
        choice = self._tools.get("toolChoice")
        kinds = choice if isinstance(choice, dict) else {}
        if "tool" in kinds or ("any" in kinds and len(self._tools.get("tools") or ()) < 2):
            return [Edit(("toolConfig", "toolChoice"), b'{"auto":{}}')]
        return []

    def _calls(self, position: int) -> tuple[ToolCall, ...]:
        """The client's calls in the assistant message at `position`."""
        calls = []
        for at, use in calls_in(self._messages[position].get("content")):
            exact = ExactAt(self.body, "messages", position, "content", at, "toolUse", "input")
            calls.append(call_of(use, exact))
        return tuple(calls)


def _results(message: Any) -> Iterator[tuple[int, str, Payload]]:
    """The tool results of a message: place, id and result."""
    content = message.get("content") if isinstance(message, dict) else None
    for at, block in enumerate(content if isinstance(content, list) else ()):
        result = block.get("toolResult") if isinstance(block, dict) else None
        if isinstance(result, dict):
            yield at, str(result.get("toolUseId") or ""), result


def _outcome(result: Payload) -> Result:
    """What a tool result reports."""
    status = result.get("status")
    return Result(result.get("content"), status == "error" if status else None)


def _grown(path: tuple[str | int, ...], content: Any, text: str) -> list[Edit]:
    """The edit that adds a text to a result: to its last text, else as a part of its own."""
    if not isinstance(content, list):
        return []
    for at in reversed(range(len(content))):
        if isinstance(content[at], dict) and isinstance(content[at].get("text"), str):
            return grown((*path, at, "text"), content[at]["text"], text)
    return [Edit((*path, END), dumps({"text": text}))]


def _is_real_user(message: Payload) -> bool:
    """Whether a person has spoken here: not callfuse, no harness's reminder, and not a tool."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    if isinstance(content, list):
        content = [block for block in content if not (isinstance(block, dict) and "toolResult" in block)]
        if not content:
            return False
    return not is_own_or_reminder(content)
