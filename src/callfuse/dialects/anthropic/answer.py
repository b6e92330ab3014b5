"""Answers of Anthropic messages: reads their calls, writes the answer without withheld calls, rebuilds the model's
turn.

Only calls that the client executes are read. Server-side tools have run already, and a call whose caller is not
`direct` belongs to a program that waits for it. The input comes in the block's start, as pieces of JSON, or not at all.

Written answers keep three rules of the vendor: content blocks are numbered without a gap; every block precedes
`message_delta`; and thinking of a second answer is left out once a block of the first has been sent, because the vendor
refuses a history with thinking of two answers in one message.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Event, Frame, What, WholeChoice
from callfuse.dialects.cut_reasoning import CUT
from callfuse.dialects.edits import encoded, raw_elements, raw_list, raw_object
from callfuse.dialects.numbered import BlocksWriter, FinishReasons, NumberedPart, NumberedReader
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, blocks_in, piece_in
from callfuse.dialects.shapes import index_of, is_one_of, object_of, objects_of, plain_text_of
from callfuse.dialects.usage import TokenUsage
from callfuse.model import ToolCall
from callfuse.wire import EVENTS, Format, Payload
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import Edit, dumps

CUTTING: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})
"""Stop reasons after which the last call may be incomplete."""
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks with signatures that are valid for one model only."""
_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "content"}
"""Deltas with a piece of text, and the key that it belongs to in the block."""
_SAID: Final = {"text": ("text", TEXT), "thinking": ("thinking", REASONING)}
"""Blocks with a text, and the key of the text; a delta has the same key."""
_KNOWN_TYPES: Final = frozenset({"text", "tool_use", "server_tool_use", "mcp_tool_use", "compaction"})
"""Types of blocks that grow by known deltas."""
_BLOCK_EVENTS: Final = ("content_block_start", "content_block_delta", "content_block_stop")
_ENDS: Final = ("message_delta", "message_stop")
_INDEX: Final = ("index",)


def is_client_call(block: Any) -> TypeGuard[Payload]:
    """Whether a content block is a call for the client, made by the model itself."""
    return isinstance(block, dict) and block.get("type") == "tool_use" and is_direct(block.get("caller"))


def is_direct(caller: Any) -> bool:
    """Whether the model itself made a call; True if the call names no caller."""
    return caller is None or not isinstance(caller, dict) or caller.get("type") == "direct"


def names_of(block: Payload) -> tuple[str, str]:
    """Return the id and the name of a call; either may be empty."""
    return str(block.get("id") or ""), str(block.get("name") or "")


class MessagesReader(NumberedReader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_has_reason",)

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self._has_reason = False

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        kind = payload.get("type")
        if kind == "content_block_delta":
            delta = object_of(payload.get("delta"))
            if delta.get("type") == "input_json_delta":
                call = self._by_index.get(index_of(payload.get("index")))
                if call is not None:
                    call.pieces.append(plain_text_of(delta.get("partial_json")))
            return NO_EVENTS
        if kind == "content_block_start":
            return self._start(payload)
        if kind == "content_block_stop":
            return self._close(payload.get("index"))
        if kind == "message_delta":
            return self._finish(object_of(payload.get("delta")).get("stop_reason"))
        if kind == "message_stop":
            return self._stop()
        if kind == "message_start":
            self._by_index.clear()
            return (Event(What.BROKE),) if self.calls else NO_EVENTS
        return (Event(What.BROKE),) if kind == "error" else NO_EVENTS

    def _finish(self, reason: Any) -> Sequence[Event]:
        """Return the event for a stop reason, if there is a stop reason."""
        self._has_reason |= bool(reason)
        if is_one_of(reason, CUTTING):
            return (Event(What.CUT, 0, self.cut_call()),)
        return (Event(What.FINISHED),) if reason else NO_EVENTS

    def _stop(self) -> Sequence[Event]:
        """Return the events for the end of the message. If the vendor sends no stop reason, the message is complete if
        its calls are."""
        if self._has_reason or self._by_index:
            return (Event(What.ENDED),)
        return (Event(What.FINISHED), Event(What.ENDED))

    def _start(self, payload: Payload) -> Sequence[Event]:
        """Return the event for the start of a block, if the block is a call for the client."""
        block = payload.get("content_block")
        if not is_client_call(block):
            return NO_EVENTS
        begun = dumps(block["input"]).decode() if block.get("input") else ""
        return self._open(payload.get("index"), block.get("id"), block.get("name"), begun)


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in an event, or in a whole message."""
    begun = payload.get("content_block") or payload.get("delta")
    if type(begun) is dict:
        for key, part in _SAID.values():
            yield from piece_in(part, (index_of(payload.get("index")), key), begun.get(key))
    yield from blocks_in(payload.get("content"), "", _SAID)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer, which has a list of blocks."""
    blocks = payload.get("content")
    if payload.get("type") == "error" or not isinstance(blocks, list):
        return []
    calls = [ToolCall(*names_of(block), block.get("input")) for block in blocks if is_client_call(block)]
    return [WholeChoice(0, tuple(calls), cut=is_one_of(payload.get("stop_reason"), CUTTING))]


def is_unfinished(payloads: Iterable[Payload]) -> bool:
    """Whether a server tool's result is missing, or the turn is paused."""
    blocks: list[Payload] = []
    reasons = []
    for payload in payloads:
        blocks += [*objects_of(payload.get("content")), object_of(payload.get("content_block"))]
        reasons += [payload.get("stop_reason"), object_of(payload.get("delta")).get("stop_reason")]
    called = {str(block.get("id")) for block in blocks if block.get("type") in ("server_tool_use", "mcp_tool_use")}
    answered = {str(block.get("tool_use_id")) for block in blocks}
    return bool(called - answered) or "pause_turn" in reasons


def thinks(block: Any) -> bool:
    """Whether a content block is thinking."""
    return isinstance(block, dict) and is_one_of(block.get("type"), THINKING)


def is_text(block: Any) -> bool:
    """Whether a content block is text."""
    return isinstance(block, dict) and block.get("type") == "text"


class EventStream(NamedTuple):
    """How a stream is split into events, and how callfuse writes its own events."""

    form: Format
    write: Callable[[Payload], bytes]


NAMED_EVENTS: Final = EventStream(EVENTS, typed_event)
"""Server-sent events, each named by its payload's `type`."""


class MessagesWriter(BlocksWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    finish = FinishReasons(
        place="delta",
        key="stop_reason",
        stopped="end_turn",
        called="tool_use",
        cut="max_tokens",
        own=("tool_use", "end_turn", None),
    )
    must_begin = True
    reasons_once = True
    parts = ("content",)
    identity = ("id", "model")
    is_call = staticmethod(is_client_call)
    is_text = staticmethod(is_text)
    is_reasoning = staticmethod(thinks)

    def __init__(self, *, structured: bool, summed: bool, events: EventStream = NAMED_EVENTS) -> None:
        super().__init__(events.form, TokenUsage("output", summed=summed), structured=structured)
        self._write = events.write

    def _part_of(self, payload: Payload) -> NumberedPart | None:
        kind = payload.get("type")
        if not is_one_of(kind, _BLOCK_EVENTS):
            return None
        block = payload.get("content_block")
        return NumberedPart(
            payload.get("index"),
            _INDEX,
            begins=kind == "content_block_start",
            is_text=is_text(block),
            is_reasoning=thinks(block),
            ends=kind == "content_block_stop",
            is_call=is_client_call(block) or object_of(payload.get("delta")).get("type") == "input_json_delta",
        )

    def _counts_in(self, payload: Payload) -> Any:
        kind = payload.get("type")
        if kind == "message_start":
            return object_of(payload.get("message")).get("usage")
        return payload.get("usage") if kind == "message_delta" else None

    def _is_end(self, payload: Payload) -> bool:
        return payload.get("type") in _ENDS

    def _closes(self, frame: Frame) -> bool:
        return frame.payload is not None and self._is_end(frame.payload)

    def _last_text(self, payload: Payload, text: str) -> bytes:
        """Return a block's text, and the stop reason if the answer ended without a stop reason."""
        return self._text(text) + (self._delta(self.finish.stopped) if payload.get("type") == "message_stop" else b"")

    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        kind = payload.get("type")
        if kind == "message_start":
            self._usage.see(self._counts_in(payload))
            return b""
        if kind == "message_delta":
            total = self._usage.see(payload.get("usage") or {})
            return self._editor.edit(frame, [Edit(("usage",), dumps(total))])
        return frame

    def _end(self, reason: str) -> bytes:
        return self._delta(reason) + self._write({"type": "message_stop"})

    def _sign(self, number: int) -> bytes:
        delta = {"type": "signature_delta", "signature": CUT}
        return self._write({"type": "content_block_delta", "index": number, "delta": delta})

    def _stop(self, number: int) -> bytes:
        return self._write({"type": "content_block_stop", "index": number})

    def _delta(self, reason: str) -> bytes:
        """Return a `message_delta` with the stop reason and the usage of all answers."""
        delta = {"stop_reason": reason, "stop_sequence": None}
        return self._write(
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0} | self._usage.total()}
        )

    @staticmethod
    def own_part(text: str) -> Payload:
        """Return a block with a text by callfuse."""
        return {"type": "text", "text": text}

    def _text(self, text: str) -> bytes:
        index = self._take_number()
        return b"".join(
            map(
                self._write,
                (
                    {"type": "content_block_start", "index": index, "content_block": self.own_part("")},
                    {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
                    {"type": "content_block_stop", "index": index},
                ),
            )
        )


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the assistant message assembled from the events, without calls that have no name and without unknown
    blocks that cannot be rebuilt. Raises CannotReplay for thinking that cannot be rebuilt."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    unknown: set[int] = set()
    for payload in payloads:
        index = index_of(payload.get("index"))
        if payload.get("type") == "content_block_start":
            blocks[index] = _own_copy(payload["content_block"])
        elif payload.get("type") == "content_block_delta":
            delta = payload["delta"]
            if delta.get("type") == "input_json_delta":
                inputs.setdefault(index, []).append(delta.get("partial_json") or "")
            elif not _grow(blocks[index], delta):
                unknown.add(index)
    for index, pieces in inputs.items():
        blocks[index]["input"] = raw_object("".join(pieces), "input_json_delta")
    whole = {index: joined(block) for index, block in blocks.items() if index not in unknown}
    kept = [
        block
        for block in whole.values()
        if block.get("text") != "" and (names_of(block)[1] or not is_client_call(block))
    ]
    return _message([encoded(block, f"{block.get('type')}") for block in kept])


def _own_copy(block: Payload) -> dict[str, Any]:
    """Return a copy of a block that may be changed."""
    citations = block.get("citations")
    return {**block, "citations": [*citations]} if citations else dict(block)


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the content of a whole answer as an assistant message. Raises CannotReplay if there is no content."""
    if "content" not in payload:
        raise CannotReplay("content")
    return _message(raw_elements(body, ("content",)))


def _grow(block: dict[str, Any], delta: Payload) -> bool:
    """Apply one delta to its block. Leave out an unknown delta; return False if the block's type is unknown, too,
    because the block may be empty without it. Raises CannotReplay for an unknown delta of thinking, which must be sent
    back complete."""
    kind = plain_text_of(delta.get("type"))
    if kind in _TEXTS:
        grow(block, _TEXTS[kind], delta[_TEXTS[kind]])
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    elif kind == "citations_delta":
        block["citations"] = block.get("citations") or []
        block["citations"].append(delta["citation"])
    elif thinks(block):
        raise CannotReplay(kind or "delta")
    else:
        return is_one_of(block.get("type"), _KNOWN_TYPES)
    return True


def _message(blocks: Sequence[bytes]) -> bytes:
    """Return an assistant message with these blocks (JSON texts)."""
    return b'{"role":"assistant","content":' + raw_list(blocks) + b"}"
