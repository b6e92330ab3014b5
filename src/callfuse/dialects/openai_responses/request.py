"""Requests of the Responses API: reads rounds with their results, and writes changed bodies that keep all other bytes.

The input is a text or a list of items. A chain continues by `previous_response_id`, or in a stored `conversation`.
Items may be references by id.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay, Reply
from callfuse.dialects.base import Block
from callfuse.dialects.declared import DescribedTool, described, entries, name_of
from callfuse.dialects.edits import raw_elements
from callfuse.dialects.history import append_text, texts
from callfuse.dialects.item_list import ItemList, Part, opening_of
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
from callfuse.dialects.openai_responses.writer import OwnMessage, ResponsesWriter, own_id
from callfuse.dialects.shapes import is_one_of, list_of, object_of, plain_text_of
from callfuse.dialects.stateful import Continuation, StoredAnswer
from callfuse.dialects.typed import (
    CALLS_MADE,
    EVENT_STREAM,
    JSON,
    NOTHING_SAID,
    OwnAnswer,
    Speech,
    Utterance,
    own_text,
    speech_of,
)
from callfuse.model import MARKER, Result, ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import Edit, Path, apply, dumps, loads

MAX_ITEMS: Final = 512
"""The most items per conversation that are kept because later requests must change them; the oldest are dropped."""

_SCHEMAS: Final = frozenset({"json_schema", "json_object"})
_SPEAKERS: Final = frozenset({"user", "system", "developer"})
_SPOKEN: Final = frozenset({"message", "additional_tools"})
"""Types of items with a role."""
_OF_A_RUN: Final = ("_call", "_output", "_request", "_response")
"""Ends of the types of items with calls and results, including those of the vendor's own tools."""
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


class ResponsesRequest(ItemList):
    """A request to the Responses API: the parsed body and its bytes."""

    __slots__ = ("trail",)

    _chain_key = "previous_response_id"
    _own_prefix = OWN_RESPONSE
    _text_type = "input_text"

    def __init__(self, body: bytes, payload: Payload) -> None:
        spoken = payload.get("input", [])  # may be missing in a chain
        items = spoken if isinstance(spoken, list) else [{"role": "user", "content": spoken}]
        super().__init__(body, payload | {"input": spoken}, items)
        form = object_of(object_of(payload.get("text")).get("format"))
        self.structured = is_one_of(form.get("type"), _SCHEMAS)
        self.probe = self.probe and not (payload.get("prompt") or any(_tool_lists(items)))
        self.trail = Trail(stored=self.stored)

    def _find_place(self) -> tuple[bytes, ...]:
        """Return the stored response, or else the stored conversation that the request continues."""
        conversation = self._payload.get("conversation")
        if isinstance(conversation, dict):
            conversation = conversation.get("id")
        return super()._find_place() or opening_of("conversation", conversation)

    def _part(self, item: Any) -> Part:
        kind = plain_text_of(item.get("type")) if type(item) is dict else None
        if kind in CALLS:
            return Part.CALL if is_client_call(item) else Part.MODEL
        if kind in RESULTS and item.get("execution") != "server":
            return Part.RESULT
        return Part.SPOKEN if _role_of(item) in _SPEAKERS else Part.MODEL

    def _id(self, item: Payload) -> str:
        return call_id(item)

    def _call(self, position: int, item: Payload) -> ToolCall:
        return call_of(item)

    def _keyed_result(self, item: Payload) -> tuple[str, Result]:
        return keyed_result_of(item)

    def _is_user(self, item: Any) -> bool:
        return _role_of(item) == "user"

    def opening(self) -> Iterator[bytes]:
        """Yield the instructions and the messages up to the user's first; for a chain, the id that it continues."""
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

    def declares(self, name: str) -> bool:
        """Whether the client may have a tool with this name; a stored prompt or conversation may have others. Built-in
        tools are named by their item type."""
        return name in CALLS or not self.lists_tools or super().declares(name)

    @property
    def lists_tools(self) -> bool:
        """Whether the request itself lists all tools."""
        return not (self.chained or self._payload.get("prompt")) and super().lists_tools

    def _tool_names(self) -> Iterator[Any]:
        for tools in (self._payload.get("tools"), *_tool_lists(self._items)):
            yield from _tool_names(tools)

    def described_tools(self) -> Iterator[DescribedTool]:
        """Return functions and custom tools, including those in namespaces and in items that list tools, but not those
        that a tool search found."""
        yield from _described(self._payload.get("tools"), ("tools",))
        for place, item in enumerate(self._items):
            if isinstance(item, dict) and item.get("type") == _TOOL_LIST:
                yield from _described(item.get("tools"), ("input", place, "tools"))

    def _append_text(self, place: int, text: str) -> list[Edit]:
        """Return the edits that append a text to a result; empty if the result cannot have one."""
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

    def _turn_items(self, attempt: Attempt, options: AskOptions) -> Iterator[bytes]:
        """Yield the items of a turn in a form that the asked model accepts. Raises CannotReplay for reasoning that
        cannot be sent back."""
        is_foreign = attempt.model != options.model
        for raw in raw_elements(attempt.turn, ("output",)):
            item = loads(raw)
            if not is_reasoning(item):
                yield apply(raw, [Edit(("id",), None)]) if is_foreign else raw
            elif not is_foreign:
                if not (self.stored or item.get("encrypted_content") or item.get("content")):
                    raise CannotReplay("reasoning")
                yield raw

    def _user_item(self, content: bytes) -> bytes:
        return user_item(content)

    def _said_item(self, text: str) -> Payload:
        return {"role": "assistant", "content": text}

    def _reply_item(self, reply: Reply) -> Payload:
        return answer_to(reply.call, reply.text)

    def _without_reasoning(self) -> Iterable[Edit]:
        return without_reasoning(self._items)

    def _forbid_calls(self) -> Edit:
        return Edit(("tool_choice",), b'"none"')

    def writer(self, *, usage: str, form: Format | None = None) -> ResponsesWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return ResponsesWriter(structured=self.structured, summed=usage == "sum", trail=self.trail)

    def own_answer(self, text: str) -> bytes:
        """Return a response with this text."""
        message = OwnMessage(own_id("", 0), text, refuses=self.structured).item()
        self.trail.note_own(message)
        return dumps(self._response("resp_callfuse") | {"output": [message]})

    def _response(self, id_: str) -> Payload:
        """Return an empty response by callfuse."""
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
        """Return a response by callfuse, whole or as events. In a chain it repeats the id of the previous response, so
        that the next request continues that response."""
        response = self._response(self._own_answer_id())
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

    def has_result(self, at: int) -> bool:
        """Whether an item is the result of a tool."""
        item = self._items[at]
        return isinstance(item, dict) and is_one_of(item.get("type"), RESULTS)

    def speech(self, at: int) -> Utterance:
        """Return what the model says in an item, or in the message it refers to; calls of vendors' tools count."""
        item = self._items[at]
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return Utterance(Speech.WORDS) if str(item.get("id")).startswith((OWN_ID, "msg_")) else NOTHING_SAID
        if _role_of(item) == "assistant":
            refusals = [one.get("refusal") for one in list_of(item.get("content")) if isinstance(one, dict)]
            return speech_of([one for one in refusals if isinstance(one, str)] or item.get("content"))
        kind = plain_text_of(item.get("type")) if isinstance(item, dict) else ""
        return CALLS_MADE if kind.endswith(_OF_A_RUN) else NOTHING_SAID

    def sealed_summary(self, at: int) -> str:
        """Return the encrypted summary in an item."""
        item = self._items[at]
        is_summary = isinstance(item, dict) and item.get("type") == "compaction"
        return plain_text_of(item.get("encrypted_content")) if is_summary else ""

    def own_text(self, at: int) -> str | None:
        """Return callfuse's own text in an assistant message, which may be a reference by id; None for other roles."""
        item = self._items[at]
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return MARKER if str(item.get("id")).startswith(OWN_ID) else ""
        if _role_of(item) in _SPEAKERS:
            return None
        parts = item.get("content") if isinstance(item, dict) else None
        refusals = [part.get("refusal") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        return own_text(refusals if any(refusals) else parts)

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """Return the opening of the request that continues this answer; empty in a `conversation`."""
        return () if self._payload.get("conversation") else super().after(answer_id)

    def resume(self, known: Continuation) -> bytes:
        """Adapt the body to what the vendor stored. See `stored.resume`."""
        return resume(self.body, self._payload, known)

    def continuation(self, known: Continuation, answers: Sequence[StoredAnswer]) -> Continuation:
        """Return what later requests need: items to change, the answer to continue, and results for withheld calls."""
        items = dict(known.items) | self.trail.items
        items = dict(list(items.items())[-MAX_ITEMS:])
        if not answers:
            return Continuation(items)
        last = answers[-1]
        results = [stand_in_for(reply.call, reply.text) for reply in last.replies]
        unanswered = tuple(dumps(result) for result in results if result is not None)
        return Continuation(items, last.id if last.id != answers[0].id else "", unanswered)

    def repair(self, body: bytes, error: bytes) -> bytes | None:
        """Repair a refused body by the words of the error. See `stored.repair`."""
        return repair(body, error)

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `auto`; `required` stays with several tools."""
        choice = self._payload.get("tool_choice")
        few = sum(len(list_of(tools)) for tools in (self._payload.get("tools"), *_tool_lists(self._items))) < 2
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            narrow = len(list_of(choice.get("tools"))) < 2 and choice.get("mode") == "required"
            return [Edit(("tool_choice", "mode"), b'"auto"')] if narrow else []
        if isinstance(choice, dict) or (choice == "required" and few):
            return [Edit(("tool_choice",), b'"auto"')]
        return []


def _role_of(item: Any) -> str:
    """Return the role of an item; empty if it has none."""
    if not isinstance(item, dict) or not is_one_of(item.get("type", "message"), _SPOKEN):
        return ""
    return str(item.get("role") or "")


def _tool_names(tools: Any) -> Iterator[Any]:
    """Yield the names in a list of tools, including those of namespaces; None for an entry that may add any tool."""
    for tool in entries(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if is_one_of(kind, _NAMED):
            yield name_of(tool)
        elif kind == "namespace":
            yield from map(name_of, entries(tool.get("tools")))
        elif not is_one_of(kind, _BUILT_IN):
            yield None


def _described(tools: Any, path: Path) -> Iterator[DescribedTool]:
    """Yield the client's own tools in a list at `path`, including those of namespaces."""
    for at, tool in enumerate(list_of(tools)):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if is_one_of(kind, _NAMED):
            yield from described(tool, (*path, at))
        for inner, own in enumerate(list_of(tool.get("tools")) if kind == "namespace" else ()):
            yield from described(own, (*path, at, "tools", inner))


def _tool_lists(items: Sequence[Any]) -> Iterable[Any]:
    """Return the lists of tools within an input."""
    found = [one for one in items if type(one) is dict and type(kind := one.get("type")) is str and kind in _WITH_TOOLS]
    return [item.get("tools") for item in found]
