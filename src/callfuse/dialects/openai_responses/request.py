"""Requests of the Responses API: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.base import AskError, Attempt, Block, Continuation, Manner, Note, Remembered
from callfuse.dialects.declared import is_declared
from callfuse.dialects.history import digest_of, grown, pair, result_at, texts
from callfuse.dialects.openai_responses import mend
from callfuse.dialects.openai_responses.input import SPEAKERS, Recall, Run, is_real_user, opening, role_of, runs
from callfuse.dialects.openai_responses.items import (
    CALLS,
    OWN_ID,
    OWN_RESPONSE,
    answer_to,
    call_id,
    result_of,
    stand_in_for,
)
from callfuse.dialects.openai_responses.message import OwnMessage, own_id
from callfuse.dialects.openai_responses.reasoning import is_reasoning, said_otherwise, without_reasoning
from callfuse.dialects.openai_responses.stored import resumed
from callfuse.dialects.openai_responses.tools import loaded, tool_names
from callfuse.dialects.openai_responses.trail import Trail
from callfuse.dialects.openai_responses.turn import id_of, items_of
from callfuse.dialects.openai_responses.whole import splice_whole, thin_whole
from callfuse.dialects.openai_responses.write import ResponsesWriter
from callfuse.dialects.parsed import ParsedBody
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Typed, own_text, typed
from callfuse.model import MARKER, Round
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import END, Edit, apply, dumps

MAX_ITEMS: Final = 512
"""Items of one conversation that are remembered for being changed in later requests."""

_SCHEMAS: Final = frozenset({"json_schema", "json_object"})


class ResponsesRequest(ParsedBody):
    """A parsed body and the bytes it came from."""

    __slots__ = (
        "_items",
        "_known",
        "_known_turn",
        "_payload",
        "_place",
        "begins_chain",
        "chained",
        "choices",
        "length",
        "model",
        "probe",
        "stored",
        "stream",
        "structured",
        "trail",
    )

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = self._came = body
        self._take(payload)
        self.length = len(self._items)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        self.choices = 1
        form = (payload.get("text") or {}).get("format")
        self.structured = isinstance(form, dict) and form.get("type") in _SCHEMAS
        self.stored = payload.get("store") is not False
        self._place = _place(payload)
        self.chained = bool(self._place)
        may_call = payload.get("tools") or payload.get("prompt") or self.chained or any(loaded(self._items))
        self.probe = not may_call  # what the vendor remembers may hold tools
        models_turn = any(role_of(item) in ("", "assistant") for item in self._items)
        self.begins_chain = self.stored and not self.chained and not models_turn
        self._known: Recall = {}
        self._known_turn = b""
        self.trail = Trail(stored=self.stored)

    def _take(self, payload: Payload) -> None:
        spoken = payload.get("input", [])  # in a chain there need be none
        self._payload = payload | {"input": spoken}
        self._items: list[Any] = spoken if isinstance(spoken, list) else [{"role": "user", "content": spoken}]

    def drop_parsed(self) -> None:
        """Let go of the payload."""
        del self._items, self._payload

    @property
    def continuing(self) -> "ResponsesRequest":
        """OpenAI remembers."""
        return self

    def opening(self) -> Iterator[bytes]:
        """Instructions and the messages up to the first of the user; of a chain where it stands."""
        if self.chained:
            yield from self._place
            return
        yield from texts(self._payload.get("instructions"))
        for item in opening(self._items):
            yield role_of(item).encode()
            yield from texts(item.get("content"))

    def turn(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the last real user message before `end` stands, and its digest; in a chain of all that went before."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            if is_real_user(item := self._items[position]):
                before = (self._known_turn, *self._place) if self.chained else ()
                return position, digest_of((*before, *texts(item.get("content"))))
        return -1, self._known_turn

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        for run in runs(self._items, self._known):
            if run is None:
                yield None
                continue
            results = [self._items[place] for place in run.results]
            paired = pair(run.calls, [(call_id(item), result_of(item)) for item in results])
            yield Round(paired, run.position)

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name: a stored prompt, or what the vendor remembers, may hold others. A
        built-in tool goes by its item's type."""
        if name in CALLS or self.chained or self._payload.get("prompt"):
            return True
        return is_declared(name, self._tool_names())

    def _tool_names(self) -> Iterator[Any]:
        yield from tool_names(self._payload.get("tools"))
        for tools in loaded(self._items):
            yield from tool_names(tools)

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the results of the named calls."""
        found: dict[int, str] = {}
        places = {run.position: run for run in runs(self._items, self._known) if run} if notes else {}
        for note in notes:
            at = self._result_at(places.get(note.position), note)
            if at is not None:
                found[at] = f"{found[at]}\n\n{note.text}" if at in found else note.text
        edits: list[Edit] = []
        for place, text in found.items():
            edits += self._grown(place, text)
        return apply(self.body, edits)

    def _result_at(self, run: Run | None, note: Note) -> int | None:
        """The index of the item that is the result of a note's call."""
        if run is None:
            return None
        at = result_at(run.calls, [call_id(self._items[place]) for place in run.results], note.call)
        return None if at is None else run.results[at]

    def _grown(self, place: int, text: str) -> list[Edit]:
        """The edits that add a text to a result; none where it has no room for one."""
        item = self._items[place]
        path, output = ("input", place, "output"), item.get("output")
        if item["type"] in ("computer_call_output", "tool_search_output"):
            return []
        if item["type"] != "shell_call_output":
            return grown(path, output, text, text_part="input_text")
        if not isinstance(output, list) or not output or not isinstance(output[-1], dict):
            return []
        at = len(output) - 1
        return grown((*path, at, "stderr"), output[at].get("stderr"), text)

    def ask_again(self, attempts: Sequence[Attempt], manner: Manner) -> bytes:
        """The body with each turn's items and a result for each of its calls; in a chain with the last results only, to
        go on from the answer that the vendor has just stored."""
        edits = [Edit(("tool_choice",), b'"none"')] if manner.text_only else self._loosened()
        if manner.model and self.model:
            edits.append(Edit(("model",), dumps(manner.model)))
        if self.chained:
            edits.append(Edit(("input",), b"[" + b",".join(_results(attempts[-1])) + b"]"))
            if "previous_response_id" in self._payload:
                edits.append(Edit(("previous_response_id",), dumps(id_of(attempts[-1].turn))))
            return apply(self.body, edits)
        new = b",".join(raw for one in attempts for raw in (*self._said(one, manner), *_results(one)))
        if not isinstance(self._payload.get("input"), list):
            return apply(self.body, [*edits, Edit(("input",), partial(_listed, new))])
        edits.append(Edit(("input", END), new))
        return apply(self.body, [*edits, *(without_reasoning(self._items) if manner.model else ())])

    def _said(self, attempt: Attempt, manner: Manner) -> Iterator[bytes]:
        """The items of a turn; raises AskError for reasoning that nobody could give back."""
        items = items_of(attempt.turn)
        if attempt.model != manner.model:
            items = said_otherwise(items)
        for raw, item in items:
            if is_reasoning(item) and not (self.stored or item.get("encrypted_content") or item.get("content")):
                raise AskError("reasoning")
            yield raw

    def writer(self, *, usage: str) -> ResponsesWriter:
        """A writer for the stream that answers this request."""
        return ResponsesWriter(structured=self.structured, summed=usage == "sum", trail=self.trail)

    def own_answer(self, text: str) -> bytes:
        """A response that says this text."""
        message = OwnMessage(own_id("", 0), text, refuses=self.structured).item()
        self.trail.wrote(message)
        return dumps(self._response("resp_callfuse") | {"output": [message]})

    def _response(self, id_: str) -> Payload:
        """A response of callfuse's own that says nothing."""
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

    def aside(self, text: str) -> OwnAnswer:
        """A response that no model has made, whole or as events. In a chain it has the id of the response before it,
        so that the next request goes on from there."""
        response = self._response(self._aside_id())
        response["previous_response_id"] = self._payload.get("previous_response_id")
        if not self.stream:
            message = OwnMessage(own_id(response["id"], 0), text, refuses=self.structured).item()
            return OwnAnswer(JSON, dumps(response | {"output": [message]}))
        writer = self.writer(usage="last")
        begun = b""
        for number, kind in enumerate(("response.created", "response.in_progress")):
            event = {"type": kind, "sequence_number": number, "response": response | {"status": "in_progress"}}
            writer.sent(event)
            begun += sse.event(dumps(event), kind)
        return OwnAnswer(EVENT_STREAM, begun + writer.close({0: Block(text)}))

    def _aside_id(self) -> str:
        return self._payload.get("previous_response_id") or OWN_RESPONSE + digest_of((self.body,)).hex()

    def after_aside(self) -> tuple[bytes, ...]:
        """What a next request opens with that goes on from such a response."""
        return self.after(self._aside_id())

    def typed(self, at: int) -> Typed | None:
        """What a person has typed in an item; an input may be one text."""
        item = self._items[at]
        if not is_real_user(item):
            return None
        if not isinstance(self._payload.get("input"), list):
            return typed((), item["content"], key="input")
        return typed(("input", at), item.get("content"))

    def own_text(self, at: int) -> str | None:
        """What callfuse says in an assistant's message, which may stand there by its id only."""
        item = self._items[at]
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return MARKER if str(item.get("id")).startswith(OWN_ID) else ""
        if role_of(item) in SPEAKERS:
            return None
        parts = item.get("content") if isinstance(item, dict) else None
        refusals = [part.get("refusal") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        return own_text(refusals if any(refusals) else parts)

    def from_aside(self) -> list[Edit]:
        """The edit without which the vendor looks for a response of callfuse's own."""
        own = str(self._payload.get("previous_response_id")).startswith(OWN_RESPONSE)
        return [Edit(("previous_response_id",), None)] if own else []

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks, structured=self.structured, trail=self.trail)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum", trail=self.trail if foreign else None)

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """What a next request opens with that goes on from an answer; a conversation keeps its own name."""
        if not answer_id or not (self.chained or self.begins_chain) or self._payload.get("conversation"):
            return ()
        return b"previous_response_id", answer_id.encode()

    def recall(self, calls: Recall, turn: bytes) -> None:
        """Know the calls whose results may come without them."""
        self._known = calls
        if self.chained:
            self._known_turn = turn

    def resumed(self, known: Continuation) -> bytes:
        """The body without what the vendor does not know, going on from where the vendor is."""
        return resumed(self.body, self._payload, known)

    def continuation(self, known: Continuation, answers: Sequence[Remembered]) -> Continuation:
        """What later requests need: the items to be changed, the last answer, and results for its open calls."""
        items = dict(known.items) | self.trail.items
        items = dict(list(items.items())[-MAX_ITEMS:])
        if not answers:
            return Continuation(items)
        last = answers[-1]
        results = [stand_in_for(reply.call, reply.text) for reply in last.replies]
        unanswered = tuple(dumps(result) for result in results if result is not None)
        return Continuation(items, last.id if last.id != answers[0].id else "", unanswered)

    def mended(self, body: bytes, error: bytes) -> bytes | None:
        """A refused body, put right where the error names a call without result or an item without its company."""
        return mend.mended(body, error)

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `auto`; `required` stays while another tool is open."""
        choice = self._payload.get("tool_choice")
        few = sum(len(tools or ()) for tools in (self._payload.get("tools"), *loaded(self._items))) < 2
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            narrow = len(choice.get("tools") or ()) < 2 and choice.get("mode") == "required"
            return [Edit(("tool_choice", "mode"), b'"auto"')] if narrow else []
        if isinstance(choice, dict) or (choice == "required" and few):
            return [Edit(("tool_choice",), b'"auto"')]
        return []


def _place(payload: Payload) -> tuple[bytes, ...]:
    """Where in the vendor's memory a request goes on; nothing where it goes on from nowhere."""
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


def _listed(new: bytes, text: bytes) -> bytes:
    """An input that was a plain text, as a list of items with others behind it."""
    return b'[{"role":"user","content":' + text + b"}," + new + b"]"
