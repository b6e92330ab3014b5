"""Requests of the Interactions API: reads rounds with their results, writes changed bodies that keep all other bytes.

The input is a text, a list of contents, or a list of steps. A chain continues by `previous_interaction_id`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import Block
from callfuse.dialects.declared import DescribedTool, described, entries, name_of
from callfuse.dialects.edits import raw_elements, raw_list
from callfuse.dialects.history import append_text, texts
from callfuse.dialects.interactions.answer import COMPLETED
from callfuse.dialects.interactions.steps import (
    CALL,
    OUTPUT,
    RESULT,
    THOUGHT,
    USER,
    answer_to,
    call_of,
    is_of,
    keyed_result_of,
    own_step,
    steps_of,
)
from callfuse.dialects.interactions.writer import InteractionsWriter, event
from callfuse.dialects.item_list import ItemList, Part
from callfuse.dialects.session_ids import INTERACTION
from callfuse.dialects.shapes import is_one_of, list_of, object_of
from callfuse.dialects.stateful import Continuation, StoredAnswer
from callfuse.dialects.typed import (
    CALLS_MADE,
    EVENT_STREAM,
    JSON,
    NOTHING_SAID,
    OwnAnswer,
    Utterance,
    own_text,
    speech_of,
)
from callfuse.model import Result, ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import Edit, ExactValues, apply, dumps, loads

OWN_INTERACTION: Final = "callfuse_"
"""Prefix of the ids of callfuse's own interactions."""
_GOOGLES: Final = frozenset({
    "code_execution", "computer_use", "file_search", "google_maps", "google_search", "retrieval", "url_context",
})  # fmt: skip
"""Tools that Google runs, or whose calls have steps of their own."""
_CHOICE: Final = ("generation_config", "tool_choice")
_PARTS: Final = {CALL: Part.CALL, RESULT: Part.RESULT, USER: Part.SPOKEN}
"""The role of each type of step; steps of other types are the model's."""


class InteractionsRequest(ItemList):
    """A request to the Interactions API: the parsed body and its bytes. Its items are steps."""

    __slots__ = ("_exact",)

    _chain_key = INTERACTION
    _own_prefix = OWN_INTERACTION
    _text_type = "text"

    def __init__(self, body: bytes, payload: Payload) -> None:
        super().__init__(body, payload, steps_of(payload["input"]))
        self._exact = ExactValues(body)
        self.model = self.model or str(payload.get("agent") or "")
        self.structured = bool(payload.get("response_format"))
        self.probe = self.probe or self._config.get("max_output_tokens") == 1

    @property
    def _config(self) -> Payload:
        return object_of(self._payload.get("generation_config"))

    def _part(self, item: Any) -> Part:
        kind = item.get("type") if isinstance(item, dict) else None
        return _PARTS.get(kind, Part.MODEL) if isinstance(kind, str) else Part.MODEL

    def _id(self, item: Payload) -> str:
        return str(item.get("call_id" if is_of(item, RESULT) else "id") or "")

    def _call(self, position: int, item: Payload) -> ToolCall:
        return call_of(item, partial(self._exact.read, "input", position, "arguments"))

    def _keyed_result(self, item: Payload) -> tuple[str, Result]:
        return keyed_result_of(item)

    def _is_user(self, item: Any) -> bool:
        return is_of(item, USER)

    def opening(self) -> Iterator[bytes]:
        """Yield the instruction and the user's first step; for a chain, the id that it continues."""
        if self.chained:
            yield from self._place
            return
        yield from texts(self._payload.get("system_instruction"))
        for step in self._items:
            if is_of(step, USER):
                yield from texts(step.get("content"))
                return

    @property
    def lists_tools(self) -> bool:
        """Whether the request itself lists all tools."""
        return not (self.chained or self._payload.get("agent")) and super().lists_tools

    def declares(self, name: str) -> bool:
        """Whether the client may have a tool with this name; a stored interaction or an agent may have others."""
        return not self.lists_tools or super().declares(name)

    def _tool_names(self) -> Iterator[Any]:
        """Yield the names of the functions; None for an entry that may add any tool, e.g. an MCP server."""
        for tool in entries(self._payload.get("tools")):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if kind == "function":
                yield name_of(tool)
            elif not is_one_of(kind, _GOOGLES):
                yield None

    def described_tools(self) -> Iterator[DescribedTool]:
        """Yield the functions."""
        for at, tool in enumerate(list_of(self._payload.get("tools"))):
            if is_of(tool, "function"):
                yield from described(tool, ("tools", at))

    def name_results(self) -> list[Edit]:
        """Return the edits that name the function at each result without a name."""
        return [
            Edit(("input", places[at], "name"), dumps(call.name))
            for _, calls, places, matched in self._paired(range(self.length))
            for call, at in zip(calls, matched, strict=True)
            if at is not None and call.name.strip() and not self._items[places[at]].get("name")
        ]

    def _append_text(self, place: int, text: str) -> list[Edit]:
        return append_text(("input", place, "result"), self._items[place].get("result"), text, text_part="text")

    def _user_item(self, content: bytes) -> bytes:
        return b'{"type":"user_input","content":' + content + b"}"

    def _turn_items(self, attempt: Attempt, options: AskOptions) -> Iterable[bytes]:
        """Return the steps of a turn, without thoughts if another model is asked."""
        steps = raw_elements(attempt.turn, ("steps",))
        return steps if attempt.model == options.model else [raw for raw in steps if not is_of(loads(raw), THOUGHT)]

    def _said_item(self, text: str) -> Payload:
        return own_step(text)

    def _reply_item(self, reply: Reply) -> Payload:
        return answer_to(reply.call, reply.text)

    def _without_reasoning(self) -> list[Edit]:
        return [Edit(("input", at), None) for at, step in enumerate(self._items) if is_of(step, THOUGHT)]

    def _forbid_calls(self) -> Edit:
        if isinstance(self._payload.get("generation_config"), dict):
            return Edit(_CHOICE, b'"none"')
        return Edit(_CHOICE[:1], b'{"tool_choice":"none"}')

    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that turn a choice of one tool into `auto`; `any` stays if another tool can be called."""
        choice = self._config.get("tool_choice")
        if isinstance(choice, dict):
            allowed = object_of(choice.get("allowed_tools"))
            narrow = len(list_of(allowed.get("tools"))) < 2 and allowed.get("mode") == "any"
            return [Edit((*_CHOICE, "allowed_tools", "mode"), b'"auto"')] if narrow else []
        few = len(list_of(self._payload.get("tools"))) < 2
        return [Edit(_CHOICE, b'"auto"')] if choice == "any" and few else []

    def writer(self, *, usage: str, form: Format | None = None) -> InteractionsWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""
        return InteractionsWriter(structured=self.structured, summed=usage == "sum", model=self.model)

    def own_answer(self, text: str) -> bytes:
        """Return an interaction with this text."""
        return dumps(self._own_head() | {"status": COMPLETED, "steps": [own_step(text)]})

    def _own_head(self) -> Payload:
        """Return an interaction by callfuse."""
        times = {"created": "1970-01-01T00:00:00Z", "updated": "1970-01-01T00:00:00Z"}
        return {"id": self._own_answer_id(), "object": "interaction", "model": self.model, **times}

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """Return an interaction by callfuse, whole or as events."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        writer = self.writer(usage="last")
        created = {"event_type": "interaction.created", "interaction": self._own_head() | {"status": "in_progress"}}
        writer.note_sent(created)
        return OwnAnswer(EVENT_STREAM, event(created) + writer.close({0: Block(text)}))

    def has_result(self, at: int) -> bool:
        """Whether a step is the result of a tool."""
        return is_of(self._items[at], RESULT)

    def speech(self, at: int) -> Utterance:
        """Return what the model says in a step. Calls and results count as calls, also those of Google's own tools."""
        step = self._items[at]
        if is_of(step, OUTPUT):
            return speech_of(step.get("content"))
        kind = str(step.get("type")) if isinstance(step, dict) else ""
        return CALLS_MADE if kind.endswith(("_call", "_result")) else NOTHING_SAID

    def own_text(self, at: int) -> str | None:
        """Return callfuse's own text in the model's step; None for steps of the user."""
        step = self._items[at]
        if is_of(step, USER):
            return None
        return own_text(step.get("content")) if is_of(step, OUTPUT) else ""

    def resume(self, known: Continuation) -> bytes:
        """Adapt the body to what the vendor stored: continue the last interaction, with a result for each call that the
        client did not get."""
        edits: list[Edit] = []
        if known.go_on and self.chained:
            edits.append(Edit((INTERACTION,), dumps(known.go_on)))
        if known.unanswered:
            first = b",".join(known.unanswered)
            edits.append(Edit(("input",), partial(_put_first if self._is_listed else self._put_before, first)))
        return apply(self.body, edits)

    def _put_before(self, steps: bytes, spoken: bytes) -> bytes:
        """Turn an input that is not a list of steps into a list, with steps put first."""
        return raw_list((steps, self._user_item(spoken)))

    def continuation(self, known: Continuation, answers: Sequence[StoredAnswer]) -> Continuation:
        """Return what later requests need: the answer to continue, and results for its withheld calls."""
        if not answers:
            return Continuation()
        last = answers[-1]
        unanswered = tuple(dumps(answer_to(reply.call, reply.text)) for reply in last.replies)
        return Continuation({}, last.id if last.id != answers[0].id else "", unanswered)

    def repair(self, body: bytes, error: bytes) -> bytes | None:
        """Return None: the vendor's errors are not known to name what is missing."""
        return None


def _put_first(steps: bytes, spoken: bytes) -> bytes:
    """Return a list of steps with others put first."""
    return b"[" + steps + (b"," + spoken[1:] if spoken[1:-1].strip() else b"]")
