"""Requests of Gemini: the rounds with their results, and changes that leave the rest alone.

The model, and whether the answer is streamed, stand in the path; how it is streamed, its content type tells.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.base import AskError, Attempt, Block, Manner, Note
from callfuse.dialects.declared import entries, is_declared, name_of
from callfuse.dialects.gemini.channel import channel_of
from callfuse.dialects.gemini.history import OWN_KEY, Contents, keys_of, response_key
from callfuse.dialects.gemini.names import FUNCTION_RESPONSE, get, key
from callfuse.dialects.gemini.reasoning import without_thoughts
from callfuse.dialects.gemini.whole import splice_whole, thin_whole
from callfuse.dialects.gemini.write import GeminiWriter
from callfuse.dialects.history import digest_of, result_at, texts
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import Round
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads

_TARGET: Final = re.compile(r"([^/:?]*):(generateContent|streamGenerateContent)(?:\?|\Z)")
_FORCED: Final = frozenset({"ANY", 2})
"""Modes that demand a call."""
_HOSTED: Final = frozenset({
    "codeexecution", "enterprisewebsearch", "exaaisearch", "filesearch", "googlemaps", "googlesearch",
    "googlesearchretrieval", "parallelaisearch", "retrieval", "urlcontext",
})  # fmt: skip
"""Tools that Google runs itself, in one spelling. `computerUse` brings functions for the client, and names none."""


class GeminiRequest(ParsedBody):
    """A parsed body, the bytes it came from, and the path it went to."""

    __slots__ = (
        "_contents",
        "_payload",
        "_wants_events",
        "choices",
        "is_array",
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
        self.length = len(self._contents)
        where = _TARGET.search(target)
        self.model = where[1] if where else ""
        self.stream = where is not None and where[2] == "streamGenerateContent"
        self._wants_events = "alt=sse" in target
        self.is_array = False
        """Whether the answer comes as a JSON array; known once it begins."""
        config = get(payload, "generationConfig")
        count = get(config, "candidateCount")
        self.choices = count if isinstance(count, int) and count > 0 else 1
        may_call = bool(payload.get("tools") or get(payload, "cachedContent"))  # what is cached may hold tools
        self.probe = get(config, "maxOutputTokens") == 1 or not may_call
        self.structured = bool(
            get(config, "responseMimeType") == "application/json"
            or get(config, "responseSchema")
            or get(config, "responseJsonSchema")
        )

    def _take(self, payload: Payload) -> None:
        self._payload = payload
        self._contents = Contents(payload["contents"], self._came)

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._contents, self._payload

    def opening(self) -> Iterator[bytes]:
        """The system instruction and the first user message."""
        system = get(self._payload, "systemInstruction")
        yield from texts(system.get("parts") if isinstance(system, dict) else system)
        for at in range(self.length):
            if not self._contents.is_model(at) and (parts := self._contents.parts(at)):
                yield from texts(parts)
                return

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` stands, and its digest."""
        for at in range((self.length if end is None else end) - 1, -1, -1):
            if self._contents.is_real_user(at):
                return at, digest_of(texts(self._contents.parts(at)))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        yield from self._contents.rounds()  # not before somebody asks: till then it holds no contents

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        return is_declared(name, self._tool_names())

    def _tool_names(self) -> Iterator[Any]:
        """The functions; what is cached may hold others."""
        if get(self._payload, "cachedContent"):
            yield None
        for tool in entries(self._payload.get("tools")):
            if not isinstance(tool, dict):
                yield None
                continue
            for kind, value in tool.items():
                if kind == key(tool, "functionDeclarations"):
                    yield from map(name_of, entries(value))
                elif value is not None and kind.replace("_", "").lower() not in _HOSTED:
                    yield None

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added, under a key of callfuse's own, to the response object of each named call."""
        found: dict[tuple[str | int, ...], str] = {}
        for note in notes:
            calls = self._contents.calls(note.position)
            listed = self._contents.responses(note.position)
            keys, ids = keys_of(calls, [response for _, _, response in listed])
            at = result_at(calls, ids, note.call, keys)
            if at is None or not isinstance(listed[at][2].get("response"), dict):
                continue
            content, place, _ = listed[at]
            part = self._contents.parts(content)[place]
            path = ("contents", content, "parts", place, response_key(part), "response", OWN_KEY)
            found[path] = f"{found[path]}\n\n{note.text}" if path in found else note.text
        return apply(self.body, [Edit(path, dumps(text)) for path, text in found.items()])

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn and a content of function responses at the end of the contents. What is cached is so
        for one model, with its tool choice."""
        if (manner.model or manner.text_only) and get(self._payload, "cachedContent"):
            raise AskError("cachedContent")
        reader = manner.model or self.model
        new: list[bytes] = []
        for turn, replies, model in attempts:
            own = model == manner.model
            new.append(turn if own else apply(turn, without_thoughts(loads(turn)["parts"], (), reader)))
            parts = []
            for reply in replies:
                id_ = {"id": reply.call.id} if reply.call.id else {}
                parts.append({FUNCTION_RESPONSE: id_ | {"name": reply.call.name, "response": {"error": reply.text}}})
            new.append(dumps({"role": "user", "parts": parts}))
        edits = [Edit(("contents", END), b",".join(new))]
        edits += [self._shut()] if manner.text_only else self._loosened()
        for at in range(self.length if manner.model else 0):
            if self._contents.is_model(at):
                edits += without_thoughts(self._contents.parts(at), ("contents", at), reader)
        return apply(self.body, edits)

    def writer(self, *, usage: str) -> GeminiWriter:
        """A writer for the stream that answers this request."""
        channel = channel_of(is_array=self.is_array)
        return GeminiWriter(channel, model=self.model, structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """An answer that says this text."""
        return dumps(self._said(text))

    def _said(self, text: str) -> Payload:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}
        head = {"modelVersion": self.model, "responseId": "callfuse"}
        return {"candidates": [candidate], "usageMetadata": usage} | head

    def aside(self, text: str) -> OwnAnswer:
        """An answer that no model has made, whole or as the one chunk of a stream."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        channel = channel_of(is_array=not self._wants_events)
        content_type = EVENT_STREAM if self._wants_events else JSON
        return OwnAnswer(content_type, channel.chunk(self._said(text)) + channel.end())

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in a content."""
        if not self._contents.is_real_user(at):
            return None
        return typed(("contents", at), self._contents.parts(at), key="parts")

    def own_text(self, at: int) -> str | None:
        """What callfuse says in a content of the model's."""
        return own_text(self._contents.parts(at)) if self._contents.is_model(at) else None

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks, model=self.model)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum", reader=self.model if foreign else None)

    def _shut(self) -> Edit:
        """No function may be called."""
        outer = key(self._payload, "toolConfig")
        config = self._payload.get(outer)
        if not isinstance(config, dict):
            return Edit((outer,), b'{"functionCallingConfig":{"mode":"NONE"}}')
        return Edit((outer, key(config, "functionCallingConfig")), b'{"mode":"NONE"}')

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `AUTO`; `ANY` stays while another tool is open."""
        outer = key(self._payload, "toolConfig")
        config = self._payload.get(outer)
        inner = key(config, "functionCallingConfig")
        choice = get(config, "functionCallingConfig")
        if not isinstance(choice, dict) or choice.get("mode") not in _FORCED:
            return []
        allowed = get(choice, "allowedFunctionNames")
        if len(set(allowed) if isinstance(allowed, list) and allowed else list(self._tool_names())) > 1:
            return []
        path = (outer, inner)
        edits = [Edit((*path, "mode"), b'"AUTO"')]
        if allowed is not None:
            edits.append(Edit((*path, key(choice, "allowedFunctionNames")), None))
        return edits
