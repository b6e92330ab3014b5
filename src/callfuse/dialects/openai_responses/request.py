"""Requests of the Responses API: reads rounds with their results, and writes changed bodies that keep all other bytes.

The input is a text or a list of items. The items of one response begin after a result or another role's message. In a
chain, and with item references, results come without their calls; `recall` supplies these from the ledger.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from typing import Any, Final

from callfuse.dialects.base import AskOptions, Attempt, Block, CannotReplay, Continuation, Note, StoredAnswer
from callfuse.dialects.declared import DescribedTool, RequestWithTools, described, entries, name_of
from callfuse.dialects.edits import raw_elements, raw_list
from callfuse.dialects.history import (
    Pairing,
    append_text,
    by_position,
    digest_of,
    is_own_or_reminder,
    note_places,
    pair,
    texts,
)
from callfuse.dialects.openai_responses.answer import OwnMessage, ResponsesWriter, own_id
from callfuse.dialects.openai_responses.items import (
    CALLS,
    OWN_ID,
    OWN_RESPONSE,
    RESULTS,
    answer_to,
    call_id,
    call_of,
    is_client_call,
    is_reasoning,
    keyed_result_of,
    stand_in_for,
    user_item,
)
from callfuse.dialects.openai_responses.stored import Trail, repair, resume, without_reasoning
from callfuse.dialects.shapes import is_one_of, list_of, object_of, plain_text_of
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Speech, TypedMessage, own_text, read_typed, speech_of
from callfuse.model import MARKER, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import END, Edit, Path, apply, dumps, loads

MAX_ITEMS: Final = 512
"""Items per conversation that are kept because later requests must change them; the newest stay."""

_SCHEMAS: Final = frozenset({"json_schema", "json_object"})
_SPEAKERS: Final = frozenset({"user", "system", "developer"})
_SPOKEN: Final = frozenset({"message", "additional_tools"})
"""Types of items with a role."""
_BEFORE_ALL: Final = {"role": "system"}
_OF_A_RUN: Final = ("_call", "_output", "_request", "_response")
"""Ends of the types of items with calls and results, the vendor's own tools included."""
_NO_ROOM: Final = frozenset({"computer_call_output", "tool_search_output"})
"""Results to which no text can be added."""
_NAMED: Final = frozenset({"function", "custom"})
_BUILT_IN: Final = frozenset({
    "apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview", "file_search",
    "image_generation", "local_shell", "programmatic_tool_calling", "shell", "web_search", "web_search_preview",
})  # fmt: skip
"""Tools whose calls have item types of their own."""
_TOOL_LIST: Final = "additional_tools"
_WITH_TOOLS: Final = frozenset({_TOOL_LIST, "tool_search_output"})
"""Items that contain tools: Codex lists its tools in one; a tool search returns those that it found."""

Recall = Mapping[str, Callable[[], ToolCall]]
"""Calls by id, each made on demand."""


class ResponsesRequest(RequestWithTools):
    """One request: parsed body and its bytes. Also its own `ChainedRequest`."""

    __slots__ = (
        "_items",
        "_known",
        "_known_turn",
        "_payload",
        "_place",
        "begins_chain",
        "body",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
        "trail",
    )

    choices: int = 1

    def __init__(self, body: bytes, payload: Payload) -> None:
        super().__init__()
        self.body = body
        spoken = payload.get("input", [])  # may be missing in a chain
        self._payload = payload | {"input": spoken}
        self._items: list[Any] = spoken if isinstance(spoken, list) else [{"role": "user", "content": spoken}]
        self.length = len(self._items)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        form = object_of(object_of(payload.get("text")).get("format"))
        self.structured = is_one_of(form.get("type"), _SCHEMAS)
        self._place = _place(payload)
        may_call = payload.get("tools") or payload.get("prompt") or self.chained or any(_tool_lists(self._items))
        self.probe = not may_call  # a stored conversation may have tools
        models_turn = any(_role_of(item) in ("", "assistant") for item in self._items)
        self.begins_chain = self.stored and not self.chained and not models_turn
        self._known: Recall = {}
        self._known_turn = b""
        self.trail = Trail(stored=self.stored)

    @property
    def chain(self) -> "ResponsesRequest":
        """The request itself: OpenAI stores answers."""
        return self

    @property
    def stored(self) -> bool:
        """Whether the vendor stores the answer."""
        return self._payload.get("store") is not False

    @property
    def chained(self) -> bool:
        """Whether the request continues a stored conversation."""
        return bool(self._place)

    def opening(self) -> Iterator[bytes]:
        """The instructions and the messages up to the first of the user; for a chain the id that it continues."""
        if self.chained:
            yield from self._place
            return
        yield from texts(self._payload.get("instructions"))
        for item in self._items:
            role = _role_of(item)
            if role in _SPEAKERS:
                yield role.encode()
                yield from texts(item.get("content"))
            if role == "user":
                return

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """The position and the digest of the last message of a person before `end`. In a chain, earlier ones count."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            if _is_real_user(item := self._items[position]):
                before = (self._known_turn, *self._place) if self.chained else ()
                return position, digest_of((*before, *texts(item.get("content"))))
        return -1, self._known_turn

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first, with None for each message of a person."""
        items = self._items
        for answer in self._answers():
            if answer is None:
                yield None
                continue
            position, calls, places = answer
            results = [keyed_result_of(items[place]) for place in places]
            yield Round(pair(calls, results), position)

    def _answers(self) -> Iterator[tuple[int, list[ToolCall], list[int]] | None]:
        """The answers with calls, newest first, as (position, calls, indexes of results); None for a message of a
        person."""
        calls: list[ToolCall] = []
        results: list[int] = []
        begun = False
        listed = cache(self._listed_ids)
        position = self.length
        for item in (*reversed(self._items), _BEFORE_ALL):
            position -= 1
            kind = plain_text_of(item.get("type")) if type(item) is dict else None
            if kind in CALLS:
                begun = True
                if is_client_call(item):
                    calls.append(call_of(item))
                continue
            is_report = kind in RESULTS and item.get("execution") != "server"
            if not is_report and _role_of(item) not in _SPEAKERS:
                begun = True
                continue
            if begun or (results and not is_report):
                calls += self._missing_calls(results, listed)
                if calls:
                    yield position + 1, calls[::-1], results[::-1]
                calls, results, begun = [], [], False
            if is_report:
                results.append(position)
            elif _is_real_user(item):
                yield None

    def _missing_calls(self, results: Sequence[int], listed: Callable[[], Set[str]]) -> list[ToolCall]:
        """The calls of these results that are not in the input, as far as `recall` supplied them; newest first."""
        if not self._known:
            return []
        ids = [call_id(self._items[place]) for place in results]
        return [self._known[id_]() for id_ in ids if id_ in self._known and id_ not in listed()]

    def _listed_ids(self) -> Set[str]:
        """The ids of the calls in the input."""
        return {call_id(item) for item in self._items if is_client_call(item)}

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name: a stored prompt or conversation may have others. Built-in tools are
        named by their item type."""
        return name in CALLS or not self.lists_tools or super().declares(name)

    @property
    def lists_tools(self) -> bool:
        """Whether all tools are in the request itself, and it lists them."""
        return not (self.chained or self._payload.get("prompt")) and super().lists_tools

    def _tool_names(self) -> Iterator[Any]:
        for tools in (self._payload.get("tools"), *_tool_lists(self._items)):
            yield from _tool_names(tools)

    def described_tools(self) -> Iterator[DescribedTool]:
        """Functions and custom tools, also those of namespaces and of items that list tools; not what a search has
        found, which is a result."""
        yield from _described(self._payload.get("tools"), ("tools",))
        for place, item in enumerate(self._items):
            if isinstance(item, dict) and item.get("type") == _TOOL_LIST:
                yield from _described(item.get("tools"), ("input", place, "tools"))

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts appended to the results of these calls."""
        wanted = by_position(notes)
        found: dict[int, list[str]] = {}
        for answer in self._answers() if wanted else ():
            if answer is None or answer[0] not in wanted:
                continue
            position, calls, places = answer
            matched = Pairing([call_id(self._items[place]) for place in places]).places([call.id for call in calls])
            for at, text in note_places(wanted[position], calls, matched):
                found.setdefault(places[at], []).append(text)
        edits = [edit for place, added in found.items() for edit in self._append_text(place, "\n\n".join(added))]
        return apply(self.body, edits)

    def _append_text(self, place: int, text: str) -> list[Edit]:
        """The edits that append a text to a result; empty if the result cannot have one."""
        item = self._items[place]
        path, output = ("input", place, "output"), item.get("output")
        if item["type"] in _NO_ROOM:
            return []
        if item["type"] != "shell_call_output":
            return append_text(path, output, text, text_part="input_text")
        if not isinstance(output, list) or not output or not isinstance(output[-1], dict):
            return []
        at = len(output) - 1
        return append_text((*path, at, "stderr"), output[at].get("stderr"), text)

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """The body with each turn's items and a result for each call appended. In a chain only the last results, to
        continue the answer that the vendor has just stored. Raises CannotReplay."""
        edits = [Edit(("tool_choice",), b'"none"')] if options.text_only else self._loosen_choice()
        if options.model and self.model:
            edits.append(Edit(("model",), dumps(options.model)))
        if self.chained:
            edits.append(Edit(("input",), raw_list(_results(attempts[-1]))))
            if "previous_response_id" in self._payload:
                edits.append(Edit(("previous_response_id",), dumps(str(loads(attempts[-1].turn).get("id") or ""))))
            return apply(self.body, edits)
        new = b",".join(raw for one in attempts for raw in (*self._turn_items(one, options), *_results(one)))
        if not isinstance(self._payload.get("input"), list):
            return apply(self.body, [*edits, Edit(("input",), partial(_put_last, new))])
        edits.append(Edit(("input", END), new))
        return apply(self.body, [*edits, *(without_reasoning(self._items) if options.model else ())])

    def _turn_items(self, attempt: Attempt, options: AskOptions) -> Iterator[bytes]:
        """The items of a turn in a form that the asked model accepts. Raises CannotReplay for reasoning that cannot be
        sent back."""
        is_foreign = attempt.model != options.model
        for raw in raw_elements(attempt.turn, ("output",)):
            item = loads(raw)
            if not is_reasoning(item):
                yield apply(raw, [Edit(("id",), None)]) if is_foreign else raw
            elif not is_foreign:
                if not (self.stored or item.get("encrypted_content") or item.get("content")):
                    raise CannotReplay("reasoning")
                yield raw

    def writer(self, *, usage: str) -> ResponsesWriter:
        """A writer for the stream that answers this request. `usage`: `last` or `sum`."""
        return ResponsesWriter(structured=self.structured, summed=usage == "sum", trail=self.trail)

    def own_answer(self, text: str) -> bytes:
        """A response with this text."""
        message = OwnMessage(own_id("", 0), text, refuses=self.structured).item()
        self.trail.note_own(message)
        return dumps(self._response("resp_callfuse") | {"output": [message]})

    def _response(self, id_: str) -> Payload:
        """An empty response of callfuse's own."""
        return {
            "id": id_,
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": None,
        }

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """A response of callfuse's own, whole or as events. In a chain it repeats the id of the response before it, so
        that the next request continues that one."""
        response = self._response(self._synthetic_id())
        response["previous_response_id"] = self._payload.get("previous_response_id")
        if not self.stream:
            message = OwnMessage(own_id(response["id"], 0), text, refuses=self.structured).item()
            return OwnAnswer(JSON, dumps(response | {"output": [message]}))
        writer = self.writer(usage="last")
        begun = b""
        for number, kind in enumerate(("response.created", "response.in_progress")):
            event = {"type": kind, "sequence_number": number, "response": response | {"status": "in_progress"}}
            writer.note_sent(event)
            begun += typed_event(event)
        return OwnAnswer(EVENT_STREAM, begun + writer.close({0: Block(text)}))

    def _synthetic_id(self) -> str:
        return self._payload.get("previous_response_id") or OWN_RESPONSE + digest_of((self.body,)).hex()

    def after_synthetic_reply(self) -> tuple[bytes, ...]:
        """The opening of a request that continues `synthetic_reply`."""
        return self.after(self._synthetic_id())

    def typed_message(self, at: int) -> TypedMessage | None:
        """What a person typed in an item (or in an input that is a text); None if it is not a person's."""
        item = self._items[at]
        if not _is_real_user(item):
            return None
        if not isinstance(self._payload.get("input"), list):
            return read_typed((), item["content"], key="input")
        return read_typed(("input", at), item.get("content"))

    def has_result(self, at: int) -> bool:
        """Whether an item is the result of a tool."""
        item = self._items[at]
        return isinstance(item, dict) and is_one_of(item.get("type"), RESULTS)

    def speech(self, at: int) -> Speech:
        """What the model says in an item, calls of the vendor's own tools included. A message may be a reference."""
        item = self._items[at]
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return Speech.WORDS if str(item.get("id")).startswith((OWN_ID, "msg_")) else Speech.NOTHING
        if _role_of(item) == "assistant":
            refusals = [one.get("refusal") for one in list_of(item.get("content")) if isinstance(one, dict)]
            return speech_of([one for one in refusals if isinstance(one, str)] or item.get("content"))
        kind = plain_text_of(item.get("type")) if isinstance(item, dict) else ""
        return Speech.CALLS if kind.endswith(_OF_A_RUN) else Speech.NOTHING

    def own_text(self, at: int) -> str | None:
        """callfuse's own text in an assistant message, which may be a reference by id; None for other roles."""
        item = self._items[at]
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return MARKER if str(item.get("id")).startswith(OWN_ID) else ""
        if _role_of(item) in _SPEAKERS:
            return None
        parts = item.get("content") if isinstance(item, dict) else None
        refusals = [part.get("refusal") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        return own_text(refusals if any(refusals) else parts)

    def detach_from_synthetic_reply(self) -> list[Edit]:
        """The edit that removes the id of a response of callfuse's own, which the vendor does not know."""
        own = str(self._payload.get("previous_response_id")).startswith(OWN_RESPONSE)
        return [Edit(("previous_response_id",), None)] if own else []

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return self.writer(usage="last").thin_whole(body, withheld, blocks)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one. See `base.Request`."""
        return self.writer(usage=usage).splice_whole(first, second, foreign=foreign)

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """The opening of a request that continues this answer; empty in a `conversation`, which keeps its name."""
        if not answer_id or not (self.chained or self.begins_chain) or self._payload.get("conversation"):
            return ()
        return b"previous_response_id", answer_id.encode()

    def recall(self, calls: Recall, turn: bytes) -> None:
        """Supply calls, by id, whose results may come without them; `turn`: see `base.ChainedRequest`."""
        self._known = calls
        if self.chained:
            self._known_turn = turn

    def resume(self, known: Continuation) -> bytes:
        """The body adapted to what the vendor stored. See `stored.resume`."""
        return resume(self.body, self._payload, known)

    def continuation(self, known: Continuation, answers: Sequence[StoredAnswer]) -> Continuation:
        """What later requests need: items to change, the answer to continue, and results for its withheld calls."""
        items = dict(known.items) | self.trail.items
        items = dict(list(items.items())[-MAX_ITEMS:])
        if not answers:
            return Continuation(items)
        last = answers[-1]
        results = [stand_in_for(reply.call, reply.text) for reply in last.replies]
        unanswered = tuple(dumps(result) for result in results if result is not None)
        return Continuation(items, last.id if last.id != answers[0].id else "", unanswered)

    def repair(self, body: bytes, error: bytes) -> bytes | None:
        """A refused body, repaired by the error's own words. See `stored.repair`."""
        return repair(body, error)

    def _loosen_choice(self) -> list[Edit]:
        """A choice of one tool becomes `auto`; `required` stays if there is another tool to call."""
        choice = self._payload.get("tool_choice")
        few = sum(len(list_of(tools)) for tools in (self._payload.get("tools"), *_tool_lists(self._items))) < 2
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            narrow = len(list_of(choice.get("tools"))) < 2 and choice.get("mode") == "required"
            return [Edit(("tool_choice", "mode"), b'"auto"')] if narrow else []
        if isinstance(choice, dict) or (choice == "required" and few):
            return [Edit(("tool_choice",), b'"auto"')]
        return []


def _place(payload: Payload) -> tuple[bytes, ...]:
    """The key and id of the stored response or conversation that a request continues; empty if it continues none."""
    conversation = payload.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    for key, place in (("previous_response_id", payload.get("previous_response_id")), ("conversation", conversation)):
        if isinstance(place, str) and place:
            return key.encode(), place.encode("utf-8", "surrogatepass")
    return ()


def _results(attempt: Attempt) -> list[bytes]:
    """A result for each call of a turn."""
    return [dumps(answer_to(reply.call, reply.text)) for reply in attempt.replies]


def _put_last(items: bytes, text: bytes) -> bytes:
    """An input that is a plain text, as a list with items appended."""
    return raw_list((user_item(text), items))


def _role_of(item: Any) -> str:
    """The role of an item; empty if it has none."""
    if not isinstance(item, dict) or not is_one_of(item.get("type", "message"), _SPOKEN):
        return ""
    return str(item.get("role") or "")


def _is_real_user(item: Any) -> bool:
    """Whether an item is a message of a person: not callfuse's, and not a harness's reminder."""
    return _role_of(item) == "user" and not is_own_or_reminder(item.get("content"))


def _tool_names(tools: Any) -> Iterator[Any]:
    """The names in a list of tools, including those of namespaces; None for an entry that may bring any tool."""
    for tool in entries(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if is_one_of(kind, _NAMED):
            yield name_of(tool)
        elif kind == "namespace":
            yield from map(name_of, entries(tool.get("tools")))
        elif not is_one_of(kind, _BUILT_IN):
            yield None


def _described(tools: Any, path: Path) -> Iterator[DescribedTool]:
    """The client's own tools in a list at `path`, including those of namespaces."""
    for at, tool in enumerate(list_of(tools)):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if is_one_of(kind, _NAMED):
            yield from described(tool, (*path, at))
        for inner, own in enumerate(list_of(tool.get("tools")) if kind == "namespace" else ()):
            yield from described(own, (*path, at, "tools", inner))


def _tool_lists(items: Sequence[Any]) -> Iterable[Any]:
    """The lists of tools within an input."""
    return (item.get("tools") for item in items if isinstance(item, dict) and is_one_of(item.get("type"), _WITH_TOOLS))
