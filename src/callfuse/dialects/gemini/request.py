"""Requests of Gemini: reads rounds with their results, and writes changed bodies that keep all other bytes.

The path contains the model and whether the answer is streamed; the answer's content type shows how. Function responses
are matched to calls by id if both have one, else by name and order.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay
from callfuse.dialects.base import Note
from callfuse.dialects.declared import DescribedTool, described, entries, name_of
from callfuse.dialects.gemini.channel import Channel
from callfuse.dialects.gemini.parts import FUNCTION_CALL, FUNCTION_RESPONSE, arguments_of, get, key, remove_thoughts
from callfuse.dialects.gemini.writer import GeminiWriter
from callfuse.dialects.history import (
    Pairing,
    RequestWithHistory,
    append_text,
    by_position,
    digest_of,
    is_own_or_reminder,
    note_places,
    pair,
    texts,
)
from callfuse.dialects.nudges import Messages, Speaker, media_of, with_media
from callfuse.dialects.shapes import is_one_of, list_of, plain_text_of
from callfuse.dialects.typed import (
    EVENT_STREAM,
    JSON,
    NOTHING_SAID,
    OwnAnswer,
    TypedMessage,
    Utterance,
    own_text,
    read_typed,
    speech_of,
)
from callfuse.harness import OWN_KEY
from callfuse.model import MARKER, Result, Round, ToolCall
from callfuse.wire import JSON_ARRAY, Format, Payload
from callfuse.wire.jsontext import END, Edit, ExactValues, apply, dumps, loads

_TARGET: Final = re.compile(r"(?<![^/:?])([^/:?]*+):(generateContent|streamGenerateContent)(?:\?|\Z)")
_FORCED: Final = frozenset({"ANY", 2})
"""Modes that demand a call."""
_HOSTED: Final = frozenset({
    "codeexecution", "enterprisewebsearch", "exaaisearch", "filesearch", "googlemaps", "googlesearch",
    "googlesearchretrieval", "parallelaisearch", "retrieval", "urlcontext",
})  # fmt: skip
"""Tools that Google runs itself, in lower case. Not `computerUse`: it adds functions for the client without a name."""
_WRAPPERS: Final = {"result": None, "output": None, "return_value": None, "content": None, "error": True}
"""Keys under which clients wrap a result that is not an object, and whether it is an error (None: unknown). Google
documents `output` and `error`."""


_Response = tuple[int, int, Payload]
"""A function response: the index of its content, of its part there, and its object. A plain tuple, because a request
may have hundreds."""


class GeminiRequest(RequestWithHistory):
    """A request to Gemini: its parsed body, its bytes, and the settings in its path."""

    __slots__ = (
        "_contents",
        "_exact",
        "_payload",
        "_wants_events",
        "body",
        "choices",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    chain: Final = None

    def __init__(self, body: bytes, payload: Payload, target: str) -> None:
        super().__init__()
        self.body = body
        self._exact = ExactValues(body)
        self._payload = payload
        self._contents: Sequence[Any] = payload["contents"]
        self.length = len(self._contents)
        where = _TARGET.search(target)
        self.model = where[1] if where else ""
        self.stream = where is not None and where[2] == "streamGenerateContent"
        self._wants_events = "alt=sse" in target
        config = get(payload, "generationConfig")
        count = get(config, "candidateCount")
        self.choices = count if isinstance(count, int) and count > 0 else 1
        may_call = bool(payload.get("tools") or get(payload, "cachedContent"))  # cached content may have tools
        self.probe = get(config, "maxOutputTokens") == 1 or not may_call
        self.structured = bool(
            get(config, "responseMimeType") == "application/json"
            or get(config, "responseSchema")
            or get(config, "responseJsonSchema")
        )

    def opening(self) -> Iterator[bytes]:
        """Yield the system instruction and the first user message."""
        system = get(self._payload, "systemInstruction")
        yield from texts(system.get("parts") if isinstance(system, dict) else system)
        for at in range(self.length):
            if not self._is_model(at) and (parts := self._parts(at)):
                yield from texts(parts)
                return

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """Return the position and the digest of the last message of a person before `end`."""
        for at in range((self.length if end is None else end) - 1, -1, -1):
            if self._begins_turn(at):
                behind_results = None if self._is_no_nudge(at) else self._nudges.digests.get(at)
                return at, behind_results or digest_of(texts(self._parts(at)))
        return -1, b""

    def _said_from(self, begin: int) -> Messages:
        for at in range(begin, self.length):
            if self._is_model(at):
                yield Speaker.MODEL, at, None
            elif self._responses(at):
                yield Speaker.TOOL, at, None
            elif self._is_real_user(at):
                yield Speaker.USER, at, self._parts(at)

    def _begins_turn(self, at: int) -> bool:
        """Whether a content begins a timeline: a person wrote it, and it is not a nudge."""
        return self._is_real_user(at) and (self._is_no_nudge(at) or at not in self._nudges.added)

    def _is_no_nudge(self, at: int) -> bool:
        """Whether a cheap check shows that a user's content is not a nudge: no results come before it."""
        return not at or self._is_model(at - 1)

    def _is_seam(self, at: int) -> bool:
        """Whether an answer begins at a position, after a content that the model did not write."""
        return 0 < at < self.length and self._is_model(at) and not self._is_model(at - 1)

    def _rounds_from(self, begin: int) -> Iterator[Round | None]:
        """Yield the rounds of the contents from a position on."""
        for answer in self._answers(begin):
            if answer is None:
                yield None
                continue
            at, calls, responses = answer
            functions = [function for _, _, function in responses]
            results = [*map(_result, functions)]
            if responses and (shown := self._shown_behind(responses[-1][0])):
                content, is_error = results[-1]
                content = content if isinstance(content, str | list) else dumps(content).decode("utf-8", "replace")
                results[-1] = Result(with_media(content, shown), is_error)
            if len(calls) == 1 == len(responses) and (id_ := calls[0].id) and id_ == functions[0].get("id"):
                yield Round(pair(calls, [(id_, results[0])]), at)  # most rounds; halves the cost
                continue
            keys, ids = _pairing_keys(calls, functions)
            yield Round(pair(calls, list(zip(ids, results, strict=True)), keys), at)

    def _shown_behind(self, at: int) -> list[Any]:
        """Return the media beside the function responses in the content at this place, and in the next content."""
        beside = [part for part in self._parts(at) if get(part, FUNCTION_RESPONSE) is None]
        is_spoken = at + 1 < self.length and self._is_real_user(at + 1)
        return [*media_of(beside), *(media_of(self._parts(at + 1)) if is_spoken else ())]

    def _answers(self, begin: int = 0) -> Iterator[tuple[int, list[ToolCall], list[_Response]] | None]:
        """Yield the answers with calls from a position on, newest first, as (position, calls, responses); None for a
        person's message. An answer may be several contents in a row: google-genai's chats keep one per chunk."""
        calls: list[ToolCall] = []
        responses: list[_Response] = []  # calls and responses are backwards, as the contents are read
        is_model = [type(one) is dict and one.get("role") == "model" for one in self._contents]
        for at in range(self.length - 1, begin - 1, -1):
            if is_model[at]:
                calls += reversed(self._calls(at))
                if at and is_model[at - 1]:
                    continue
                if calls:
                    yield at, calls[::-1], responses[::-1]
                calls, responses = [], []
            elif found := self._responses(at):
                responses += reversed(found)
            elif self._begins_turn(at):
                yield None
                responses = []

    def _parts(self, at: int) -> Sequence[Any]:
        """Return the parts of a content; empty if it has an unknown shape."""
        content = self._contents[at]
        parts = content.get("parts") if type(content) is dict else None
        return parts if type(parts) is list else ()

    def _is_model(self, at: int) -> bool:
        """Whether the model wrote a content."""
        content = self._contents[at]
        return isinstance(content, dict) and content.get("role") == "model"

    def _is_real_user(self, at: int) -> bool:
        """Whether a person wrote a content. Text beside function responses is a harness's reminder."""
        parts = self._parts(at)
        if self._is_model(at) or not parts:
            return False
        for part in parts:
            if get(part, FUNCTION_RESPONSE) is not None:
                return False
        return not is_own_or_reminder(parts)

    def _calls(self, at: int) -> list[ToolCall]:
        """Return the calls in the model's content."""
        found = []
        for place, part in enumerate(self._parts(at)):
            function = get(part, FUNCTION_CALL)
            if type(function) is dict and (name := function.get("name")):
                path = ("contents", at, "parts", place, key(part, FUNCTION_CALL), "args")
                exact: Callable[[], Any] | None = partial(self._exact.read, *path)
                arguments = function.get("args")
                if arguments is None or "partialArgs" in function:
                    arguments, exact = arguments_of(function), None
                found.append(ToolCall(str(function.get("id") or ""), str(name), arguments, "", "", exact))
        return found

    def _responses(self, at: int) -> list[_Response]:
        """Return the function responses in the client's content."""
        found = []
        for place, part in enumerate(self._parts(at)):
            function = get(part, FUNCTION_RESPONSE)
            if type(function) is dict:
                found.append((at, place, function))
        return found

    def _tool_names(self) -> Iterator[Any]:
        """Yield the names of the functions; None if there may be others, e.g. in cached content."""
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

    def described_tools(self) -> Iterator[DescribedTool]:
        """Yield the functions; Google's own tools have no description."""
        for place, tool in enumerate(list_of(self._payload.get("tools"))):
            functions = key(tool, "functionDeclarations")
            for at, function in enumerate(list_of(get(tool, "functionDeclarations"))):
                yield from described(function, ("tools", place, functions, at))

    def name_results(self) -> list[Edit]:
        """Return the edits that name the function at each response without a name."""
        edits = []
        for answer in self._answers():
            _, calls, responses = answer or (0, [], [])
            keys, ids = _pairing_keys(calls, [function for _, _, function in responses])
            for call, at in zip(calls, Pairing(ids).places(keys), strict=True):
                if at is not None and not responses[at][2].get("name"):
                    content, place, _ = responses[at]
                    response = key(self._parts(content)[place], FUNCTION_RESPONSE)
                    edits.append(Edit(("contents", content, "parts", place, response, "name"), dumps(call.name)))
        return edits

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """Return the body with texts added to the responses of these calls, under callfuse's own key."""
        wanted = by_position(notes)
        found: dict[tuple[int, int], list[str]] = {}
        for answer in self._answers() if wanted else ():
            if answer is None or answer[0] not in wanted:
                continue
            position, calls, responses = answer
            keys, ids = _pairing_keys(calls, [function for _, _, function in responses])
            for at, text in note_places(wanted[position], calls, Pairing(ids).places(keys)):
                content, place, function = responses[at]
                if isinstance(function.get("response"), dict):
                    found.setdefault((content, place), []).append(text)
        return apply(self.body, [self._note_edit(*where, "\n\n".join(added)) for where, added in found.items()])

    def _note_edit(self, content: int, place: int, text: str) -> Edit:
        """Return the edit that adds a text to the function response in this part."""
        response = key(self._parts(content)[place], FUNCTION_RESPONSE)
        return Edit(("contents", content, "parts", place, response, "response", OWN_KEY), dumps(text))

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """Return the body with each turn and its function responses appended. Raises CannotReplay for another model or
        tool choice if the request uses cached content, which has a fixed model and tool choice."""
        if (options.model or options.text_only) and get(self._payload, "cachedContent"):
            raise CannotReplay("cachedContent")
        reader = options.model or self.model
        new: list[bytes] = []
        for attempt in attempts:
            turn, replies, model, text = attempt
            if text is not None:
                spoken = zip(("model", "user"), attempt.spoken, strict=True)
                new += [dumps({"role": role, "parts": [{"text": one}]}) for role, one in spoken]
                continue
            own = model == options.model
            new.append(turn if own else apply(turn, remove_thoughts(list_of(loads(turn).get("parts")), (), reader)))
            parts = []
            for reply in replies:
                id_ = {"id": reply.call.id} if reply.call.id else {}
                parts.append({FUNCTION_RESPONSE: id_ | {"name": reply.call.name, "response": {"error": reply.text}}})
            new.append(dumps({"role": "user", "parts": parts}))
        edits = [Edit(("contents", END), b",".join(new))]
        edits += self._forbid_calls() if options.text_only else self._loosen_choice()
        for at in range(self.length if options.model else 0):
            if self._is_model(at):
                edits += remove_thoughts(self._parts(at), ("contents", at), reader)
        return apply(self.body, edits)

    def _forbid_calls(self) -> list[Edit]:
        """Return the edit that forbids all functions."""
        outer = key(self._payload, "toolConfig")
        config = self._payload.get(outer)
        if not isinstance(config, dict):
            return [Edit((outer,), b'{"functionCallingConfig":{"mode":"NONE"}}')]
        return [Edit((outer, key(config, "functionCallingConfig")), b'{"mode":"NONE"}')]

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `AUTO`; `ANY` stays if another tool can be called."""
        outer = key(self._payload, "toolConfig")
        config = self._payload.get(outer)
        choice = get(config, "functionCallingConfig")
        if not isinstance(choice, dict) or not is_one_of(choice.get("mode"), _FORCED):
            return []
        allowed = get(choice, "allowedFunctionNames")
        if len(set(allowed) if isinstance(allowed, list) and allowed else list(self._tool_names())) > 1:
            return []
        path = (outer, key(config, "functionCallingConfig"))
        edits = [Edit((*path, "mode"), b'"AUTO"')]
        if allowed is not None:
            edits.append(Edit((*path, key(choice, "allowedFunctionNames")), None))
        return edits

    def writer(self, *, usage: str, form: Format | None = None) -> GeminiWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        channel = Channel(is_array=form is JSON_ARRAY)
        return GeminiWriter(channel, model=self.model, structured=self.structured, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """Return an answer with this text."""
        return dumps(self._own_payload(text))

    def _own_payload(self, text: str) -> Payload:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}
        head = {"modelVersion": self.model, "responseId": "callfuse"}
        return {"candidates": [candidate], "usageMetadata": usage} | head

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """Return an answer by callfuse, whole or as a stream of one chunk."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        channel = Channel(is_array=not self._wants_events)
        content_type = EVENT_STREAM if self._wants_events else JSON
        return OwnAnswer(content_type, channel.chunk(self._own_payload(text)) + channel.end())

    def typed_message(self, at: int) -> TypedMessage | None:
        """Return what a person typed in a content; None if no person wrote the content."""
        return read_typed(("contents", at), self._parts(at), key="parts") if self._is_real_user(at) else None

    def has_result(self, at: int) -> bool:
        """Whether a content has the response of a function."""
        return any(get(part, FUNCTION_RESPONSE) is not None for part in self._parts(at))

    def speech(self, at: int) -> Utterance:
        """Return what the model says in a content. Thoughts do not count."""
        if not self._is_model(at):
            return NOTHING_SAID
        said = [part for part in self._parts(at) if type(part) is dict and not part.get("thought")]
        return speech_of(said, calls=bool(self._calls(at)))

    def append_to_user(self, at: int, text: str) -> list[Edit]:
        """Return the edits that append a text to a user's content; none for other contents."""
        parts = [] if self._is_model(at) or self.has_result(at) else self._parts(at)
        return append_text(("contents", at, "parts"), parts, text, text_part=None) if parts else []

    def own_text(self, at: int) -> str | None:
        """Return callfuse's own text in the model's content; None for other contents."""
        return own_text(self._parts(at)) if self._is_model(at) else None


def _pairing_keys(calls: Sequence[ToolCall], functions: Sequence[Payload]) -> tuple[list[str], list[str]]:
    """Return the keys that match calls to responses: ids if any response has a call's id, else names. A response that
    matches no call gets an empty key."""
    known = {call.id for call in calls if call.id}
    if any(is_one_of(function.get("id"), known) for function in functions):
        return [call.id for call in calls], [str(function.get("id") or "") for function in functions]
    names = {call.name for call in calls}
    given = [function.get("name") for function in functions]
    return [call.name for call in calls], [str(name) if is_one_of(name, names) else "" for name in given]


def _result(function: Payload) -> Result:
    """Return the result in a function response: its object, or the value that clients wrap into an object, with the
    parts beside it."""
    content = function.get("response")
    is_error: bool | None = None
    if isinstance(content, dict):
        if OWN_KEY in content:
            is_own = plain_text_of(content[OWN_KEY]).startswith(MARKER)
            content = {name: value for name, value in content.items() if not (is_own and name == OWN_KEY)}
        if len(content) == 1 and (only := next(iter(content))) in _WRAPPERS:
            content, is_error = content[only], _WRAPPERS[only]
    if beside := function.get("parts"):
        text = content if isinstance(content, str) else dumps(content).decode("utf-8", "replace")
        content = [text, *beside] if isinstance(beside, list) else [text, beside]
    return Result(content, is_error)
