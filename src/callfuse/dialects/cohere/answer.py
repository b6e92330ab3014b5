"""Answers of Cohere's chat: reads their calls, writes the answer without withheld calls, rebuilds the model's turn.

Calls, content blocks and citations are numbered separately, each without a gap. A second answer's content continues the
numbers, and its plan begins after a blank line if the first answer had a plan. The client gets one `message-start` and
one `message-end`. Bytes that are not changed stay the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Block, Event, Frame, What, WholeChoice
from callfuse.dialects.edits import (
    index_without,
    message_at,
    prepend_to_string,
    raw_elements,
    raw_list,
    remove_elements,
)
from callfuse.dialects.numbered import FinishReasons, NumberedPart, NumberedReader, NumberedWriter
from callfuse.dialects.openai_chat.answer import calls_of
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, blocks_in, piece_in
from callfuse.dialects.shapes import index_of, is_one_of, list_of, object_of, plain_text_of
from callfuse.dialects.usage import Counts, TokenUsage
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads

CUTTING: Final = frozenset({"MAX_TOKENS", "ERROR", "TIMEOUT"})
"""Finish reasons after which the last call may be incomplete."""
THINKING: Final = "thinking"
"""The type of a content block that is the model's reasoning."""
_TEXTS: Final = frozenset({"text", THINKING})
_SAID: Final = {"text": ("text", TEXT), THINKING: (THINKING, REASONING)}
"""Content blocks with a text, and the key of the text."""
_CALLS: Final = "calls"
_CONTENT: Final = "content"
_CITATIONS: Final = "citations"
_SERIES: Final = (
    dict.fromkeys(("tool-call-start", "tool-call-delta", "tool-call-end"), _CALLS)
    | dict.fromkeys(("content-start", "content-delta", "content-end"), _CONTENT)
    | dict.fromkeys(("citation-start", "citation-end"), _CITATIONS)
)
"""By the type of an event, the series that its part is numbered in."""
_ABOUT: Final = ("delta", "message", "citations", "content_index")
"""The path, in a citation's event, of the number of the content that it refers to."""


class CohereReader(NumberedReader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ()

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        kind = payload.get("type")
        if kind == "tool-call-delta":
            call = self._by_index.get(index_of(payload.get("index")))
            if call is not None:
                call.pieces.append(plain_text_of(function_of(payload).get("arguments")))
            return NO_EVENTS
        if kind == "tool-call-start":
            function = function_of(payload)
            begun = plain_text_of(function.get("arguments"))
            return self._open(payload.get("index"), part_of(payload).get("id"), function.get("name"), begun)
        if kind == "tool-call-end":
            return self._close(payload.get("index"))
        if kind == "message-end":
            return self._end(delta_of(payload).get("finish_reason"))
        return NO_EVENTS

    def _end(self, reason: Any) -> Sequence[Event]:
        """Return the events for the end. A call that has not ended counts as cut off, whatever the finish reason."""
        cut = next(iter(self._by_index.values()), None)
        return (
            Event(What.CUT, 0, cut) if cut or is_one_of(reason, CUTTING) else Event(What.FINISHED),
            Event(What.ENDED),
        )


def delta_of(payload: Payload) -> Payload:
    """Return the delta of an event."""
    return object_of(payload.get("delta"))


def message_of(payload: Payload) -> Payload:
    """Return the message in an event's delta."""
    return object_of(delta_of(payload).get("message"))


def part_of(payload: Payload) -> Payload:
    """Return the piece of a call in an event."""
    return object_of(message_of(payload).get("tool_calls"))


def function_of(payload: Payload) -> Payload:
    """Return the piece of a call's function in an event."""
    return object_of(part_of(payload).get("function"))


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in an event, or in a whole answer. The plan before calls counts as reasoning."""
    for message in (message_of(payload), object_of(payload.get("message"))):
        content, place = message.get("content"), index_of(payload.get("index"))
        if type(content) is dict:
            for key, part in _SAID.values():
                yield from piece_in(part, (place, key), content.get(key))
        yield from blocks_in(content, "", _SAID)
        yield from piece_in(REASONING, "plan", message.get("tool_plan"))


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer."""
    if not isinstance(payload, dict):
        return []
    message = payload.get("message")
    if not isinstance(message, dict):
        return []
    return [WholeChoice(0, tuple(calls_of(message)), cut=is_one_of(payload.get("finish_reason"), CUTTING))]


class NestedUsage(TokenUsage):
    """Adds up `tokens`, `billed_units` and the counts beside them, each separately."""

    def __init__(self, *, summed: bool) -> None:
        super().__init__("output", summed=summed)
        self._nested = {key: TokenUsage("output", summed=summed) for key in ("billed_units", "tokens")}

    def see(self, counts: Any) -> Counts:
        """Note an answer's counts; return the total with all earlier answers."""
        if not isinstance(counts, dict):
            return {}
        super().see(counts)
        for key, usage in self._nested.items():
            usage.see(counts.get(key))
        return self.total()

    def next_answer(self) -> None:
        """Begin to count another answer."""
        super().next_answer()
        for usage in self._nested.values():
            usage.next_answer()

    def total(self) -> Counts:
        """Return the counts for the client."""
        nested = {key: usage.total() for key, usage in self._nested.items()}
        return super().total() | {key: counts for key, counts in nested.items() if counts}


class CohereWriter(NumberedWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    finish = FinishReasons(
        place="delta",
        key="finish_reason",
        stopped="COMPLETE",
        called="TOOL_CALL",
        cut="MAX_TOKENS",
        own=("TOOL_CALL", "COMPLETE"),
    )
    calls = _CALLS

    def __init__(self, *, structured: bool, summed: bool) -> None:
        super().__init__(EVENTS, NestedUsage(summed=summed), structured=structured)
        self._planned = self._break_due = False

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has content that must fit a schema."""
        return not (self._structured and self._next[_CONTENT])

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        super().note_sent(payload)
        if payload.get("type") == "tool-plan-delta":
            self._planned |= bool(message_of(payload).get("tool_plan"))

    def _part_of(self, payload: Payload) -> NumberedPart | None:
        kind = plain_text_of(payload.get("type"))
        series = _SERIES.get(kind)
        if series is None:
            return None
        thinks = series == _CONTENT and is_thinking(message_of(payload).get("content"))
        return NumberedPart(
            payload.get("index"),
            ("index",),
            series,
            begins=kind.endswith("start"),
            is_reasoning=thinks,
            ends=kind.endswith("end"),
            is_call=series == _CALLS,
        )

    def _counts_in(self, payload: Payload) -> Any:
        return delta_of(payload).get("usage") if self._is_end(payload) else None

    def _is_end(self, payload: Payload) -> bool:
        return payload.get("type") == "message-end"

    def _closes(self, frame: Frame) -> bool:
        return sse.is_done(frame.raw) if frame.payload is None else self._is_end(frame.payload)

    def _reason_of(self, block: Block) -> str:
        return block.finish.upper() if block.finish else self.finish.stopped

    def _keep(self, frame: bytes, payload: Payload, block: Block | None) -> bytes:
        """Return an event unchanged, and note it, so that a plan in it precedes the next answer's plan."""
        self.note_sent(payload)
        return frame

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        super().next_answer(foreign=foreign)
        self._break_due = self._planned

    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        kind = payload.get("type")
        if kind == "message-start":
            return b""
        if kind == "message-end":
            total = self._usage.see(self._counts_in(payload) or {})
            has_room = isinstance(payload.get("delta"), dict)
            return self._editor.edit(frame, [Edit(("delta", "usage"), dumps(total))] if total and has_room else [])
        if kind == "tool-plan-delta" and self._break_due and (plan := message_of(payload).get("tool_plan")):
            self._break_due = False
            return self._editor.edit(frame, [Edit(("delta", "message", "tool_plan"), dumps(f"\n\n{plan}"))])
        return frame

    def _splice_part(self, frame: bytes, payload: Payload, part: NumberedPart) -> bytes:
        """Rewrite an event of the next answer. Calls keep their numbers, because all earlier calls were withheld. A
        citation is left out if its content is, and otherwise gets the new number of that content."""
        if part.series == _CALLS:
            return frame
        citation: Any = message_of(payload).get("citations") if part.series == _CITATIONS else None
        if not isinstance(citation, dict) or "content_index" not in citation:
            return super()._splice_part(frame, payload, part)
        about = NumberedPart(citation["content_index"], _ABOUT, _CONTENT)
        place = self._number(about, is_left_out=False)
        number = self._number(part, is_left_out=place is None)
        if number is None:
            return b""
        edits = [Edit(at.path, dumps(to)) for at, to in ((about, place), (part, number)) if at.written != to]
        return self._editor.edit(frame, edits)

    def _end(self, reason: str) -> bytes:
        usage = self._usage.total()
        delta = {"finish_reason": reason} | ({"usage": usage} if usage else {})
        return typed_event({"type": "message-end", "delta": delta}) + sse.event(sse.DONE)

    def _stop(self, number: int) -> bytes:
        return typed_event({"type": "tool-call-end", "index": number})

    def _stop_said(self, series: str, number: int) -> bytes:
        kind = "content-end" if series == _CONTENT else "citation-end"
        return typed_event({"type": kind, "index": number})

    def _text(self, text: str) -> bytes:
        index = self._take_number(_CONTENT)
        start = {"type": "text", "text": ""}
        return b"".join(
            (
                typed_event({"type": "content-start", "index": index, "delta": {"message": {"content": start}}}),
                typed_event(
                    {"type": "content-delta", "index": index, "delta": {"message": {"content": {"text": text}}}}
                ),
                typed_event({"type": "content-end", "index": index}),
            )
        )

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return the answer without the calls at these (choice, call) places, with the block's text."""
        payload: Payload = loads(body)
        message = payload["message"]
        calls = [at for at, call in enumerate(list_of(message.get("tool_calls"))) if type(call) is dict]
        gone = [calls[place] for _, place in withheld]  # elements that are not objects go with the last call
        whole = len(gone) == len(calls)
        edits = remove_elements(("message", "tool_calls"), gone, len(gone) if whole else len(calls))
        if block := blocks.get(0):
            said = dumps({"type": "text", "text": block.text})
            if isinstance(message.get("content"), list):
                edits.append(Edit(("message", "content", END), said))
            else:
                edits.append(Edit(("message", "content"), raw_list([said])))
            edits += self._finish_edits(payload, block)
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second answer with the first one's id, with the first one's plan and content in front (without
        texts that must fit a schema), and with the usage of both."""
        if foreign:
            second = _without(second, is_thinking)
        if self._structured:
            first = _without(first, _is_text)
        one: Payload = loads(first)
        other: Payload = loads(second)
        edits = [Edit(("id",), dumps(one["id"]))] if "id" in one and "id" in other else []
        if plan := one["message"].get("tool_plan"):
            edits.append(Edit(("message", "tool_plan"), prepend_to_string(plan)))
        before = raw_elements(first, ("message", "content"))
        if before:
            edits.append(Edit(("message", "content"), raw_list(before + raw_elements(second, ("message", "content")))))
        cited = raw_elements(first, ("message", "citations"))
        if cited or (before and other["message"].get("citations")):
            shifted = [_shift_citation(raw, len(before)) for raw in raw_elements(second, ("message", "citations"))]
            edits.append(Edit(("message", "citations"), raw_list(cited + shifted)))
        if total := self._usage.of_both(one.get("usage"), other.get("usage")):
            edits.append(Edit(("usage",), dumps(total)))
        return apply(second, edits)


def is_thinking(block: Any) -> bool:
    """Whether a content block is the model's reasoning."""
    return isinstance(block, dict) and block.get("type") == THINKING


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _without(body: bytes, is_gone: Callable[[Any], bool]) -> bytes:
    """Return an answer without some of its content blocks and their citations; other citations are renumbered."""
    message = loads(body)["message"]
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    gone = [at for at, block in enumerate(blocks) if is_gone(block)]
    edits = [Edit(("message", "content", at), None) for at in gone]
    if gone and len(gone) == len(blocks):
        edits = [Edit(("message", "content"), None)]
    for at, citation in enumerate(list_of(message.get("citations")) if gone else ()):
        about = index_of(object_of(citation).get("content_index"))
        place = ("message", "citations", at)
        left = index_without(about, gone)
        edits.append(Edit(place, None) if left is None else Edit((*place, "content_index"), dumps(left)))
    return apply(body, edits)


def _shift_citation(citation: bytes, blocks: int) -> bytes:
    """Return a citation of the second answer, whose content now follows this many blocks of the first."""
    index = index_of(object_of(loads(citation)).get("content_index"))
    return apply(citation, [Edit(("content_index",), dumps(index + blocks))])


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the assistant message assembled from the events, without citations, which are output only. Raises
    CannotReplay."""
    reader = CohereReader()
    plan = ""
    blocks: dict[int, Payload] = {}
    for payload in payloads:
        reader.read(payload)
        kind, index, message = payload.get("type"), index_of(payload.get("index")), message_of(payload)
        if kind == "tool-plan-delta":
            plan += message.get("tool_plan") or ""
        elif kind == "content-start":
            blocks[index] = dict(_content(message))
        elif kind == "content-delta":
            _grow(blocks.setdefault(index, {}), _content(message))
    message = {"role": "assistant"}
    message |= {"tool_plan": plan} if plan else {}
    content = [block for block in map(joined, blocks.values()) if block.get(str(block.get("type"))) != ""]
    message |= {"content": content} if content else {}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reader.calls
        if call.name
    ]
    return dumps(message | {"tool_calls": calls})


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the message of a whole answer, without empty keys and citations."""
    empty = () if payload["message"].get("content") else ("content",)
    return message_at(body, ("message",), without=("citations", *empty))


def _content(message: Payload) -> Payload:
    """Return the content in an event's message. Raises CannotReplay if the content is not an object."""
    content = message.get("content")
    if not isinstance(content, dict):
        raise CannotReplay("content")
    return content


def _grow(block: Payload, delta: Payload) -> None:
    """Add the text of a delta to its block; other values are left out, because no vendor is known to expect them back.
    Raises CannotReplay if the text has another type."""
    for key, value in delta.items():
        if isinstance(value, str) and key != "type":
            grow(block, key, value)
        elif key in _TEXTS:
            raise CannotReplay(f"content.{key}")
