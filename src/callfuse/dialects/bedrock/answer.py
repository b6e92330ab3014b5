"""Answers of Bedrock's Converse: reads their calls, rebuilds the model's turn.

Only calls that the client executes are read; a tool use of type `server_tool_use` has run already. Blocks that stay
keep their bytes. A payload of a stream is an object with the event's type as its only key, as in boto3. Content blocks
are numbered; a block of text or reasoning begins with its first delta, only a tool use has a start event.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeGuard

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Event, What, WholeChoice
from callfuse.dialects.edits import encoded, raw_at, raw_list, raw_object
from callfuse.dialects.numbered import NumberedReader
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, piece_in
from callfuse.dialects.shapes import index_of, is_one_of, object_of, objects_of, plain_text_of
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.aws_events import EXCEPTION
from callfuse.wire.jsontext import ExactValues

CUTTING: Final = frozenset(
    {"max_tokens", "content_filtered", "guardrail_intervened", "model_context_window_exceeded", "malformed_tool_use"}
)
"""Stop reasons after which the last call may be incomplete."""
CONTENT: Final = ("output", "message", "content")
SERVER_TOOL: Final = "server_tool_use"
"""The type of a tool use that Bedrock runs itself."""


def calls_of(content: Any, exact_values: ExactValues | None = None, position: int = 0) -> list[ToolCall]:
    """Return the calls for the client in content blocks: of an answer, or (with `exact_values`) of the request's
    message at `position`."""
    calls = []
    for at, use in tool_uses(content):
        path = ("messages", position, "content", at, "toolUse", "input")
        exact = partial(exact_values.read, *path) if exact_values else None
        calls.append(
            ToolCall(str(use.get("toolUseId") or ""), str(use.get("name") or ""), use.get("input"), exact=exact)
        )
    return calls


def tool_uses(content: Any) -> Iterator[tuple[int, Payload]]:
    """Yield the client's tool uses in content blocks, each with the block's index."""
    for at, block in enumerate(content if isinstance(content, list) else ()):
        use = block.get("toolUse") if isinstance(block, dict) else None
        if is_client_use(use):
            yield at, use


def is_client_use(use: Any) -> TypeGuard[Payload]:
    """Whether a tool use is a call for the client."""
    return isinstance(use, dict) and use.get("type") != SERVER_TOOL


class ConverseReader(NumberedReader):
    """Assembles the calls of one streamed answer. The answer ends with its metadata, or with its body."""

    __slots__ = ()

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        kind, said = event_in(payload)
        if kind == "contentBlockDelta":
            use = object_of(said.get("delta")).get("toolUse")
            call = self._by_index.get(index_of(said.get("contentBlockIndex"))) if use else None
            if call is not None:
                call.pieces.append(plain_text_of(object_of(use).get("input")))
            return NO_EVENTS
        if kind == "contentBlockStart":
            use = object_of(said.get("start")).get("toolUse")
            if not is_client_use(use):
                return NO_EVENTS
            return self._open(said.get("contentBlockIndex"), use.get("toolUseId"), use.get("name"))
        if kind == "contentBlockStop":
            return self._close(said.get("contentBlockIndex"))
        if kind == "messageStop":
            if is_one_of(said.get("stopReason"), CUTTING):
                return (Event(What.CUT, 0, self.cut_call()),)
            return (Event(What.FINISHED),)
        if kind == "metadata":
            return (Event(What.ENDED),)
        restarts = kind == "messageStart" and bool(self.calls)
        return (Event(What.BROKE),) if restarts or kind == EXCEPTION else NO_EVENTS


def event_in(payload: Payload | None) -> tuple[str, Payload]:
    """Return an event's type and its content; both empty if the content is not an object."""
    for kind, said in (payload or {}).items():
        return (kind, said) if isinstance(said, dict) else ("", {})
    return "", {}


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in an event, or in a whole answer."""
    kind, event = event_in(payload)
    if kind == "contentBlockDelta":
        place, delta = index_of(event.get("contentBlockIndex")), object_of(event.get("delta"))
        yield from piece_in(TEXT, (place, TEXT), delta.get("text"))
        yield from piece_in(REASONING, (place, REASONING), object_of(delta.get("reasoningContent")).get("text"))
    for place, block in enumerate(objects_of(_content_of(payload))):
        reasoning = object_of(object_of(block.get("reasoningContent")).get("reasoningText"))
        yield from piece_in(TEXT, (place, TEXT), block.get("text"))
        yield from piece_in(REASONING, (place, REASONING), reasoning.get("text"))


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer."""
    content = _content_of(payload)
    if content is None:
        return []
    return [WholeChoice(0, tuple(calls_of(content)), cut=is_one_of(payload.get("stopReason"), CUTTING))]


def _content_of(payload: Payload) -> list[Any] | None:
    """Return the content of a whole answer's message; None if the content is not a list."""
    content = object_of(object_of(payload.get("output")).get("message")).get("content")
    return content if isinstance(content, list) else None


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the message of a whole answer, byte for byte. Raises CannotReplay if there is no message."""
    if not isinstance(object_of(payload.get("output")).get("message"), dict):
        raise CannotReplay("message")
    return raw_at(body, CONTENT[:2])


def reasons(block: Any) -> bool:
    """Whether a content block is reasoning, whose signature is valid only for the model that wrote it."""
    return isinstance(block, dict) and "reasoningContent" in block


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the assistant message assembled from the events, without citations (which are output only), blank texts
    and calls without a name. Raises CannotReplay for a block that cannot be rebuilt."""
    blocks: dict[int, dict[str, Any]] = {}
    for payload in payloads:
        kind, said = event_in(payload)
        index = index_of(said.get("contentBlockIndex"))
        if kind == "contentBlockStart":
            for part, begun in object_of(said.get("start")).items():
                if part != "toolUse":
                    raise CannotReplay(f"{part}")
                blocks[index] = {"toolUse": {**begun}}
        elif kind == "contentBlockDelta":
            _grow(blocks.setdefault(index, {}), said["delta"])
    content = [dumped for block in blocks.values() if (dumped := _whole_block(block))]
    return b'{"role":"assistant","content":' + raw_list(content) + b"}"


def _grow(block: dict[str, Any], delta: Payload) -> None:
    """Apply one delta to its block. Raises CannotReplay for a delta of an unknown kind."""
    for part, said in delta.items():
        if part == "text":
            grow(block, "text", said)
        elif part == "toolUse":
            grow(block["toolUse"], "input", said["input"])
        elif part == "reasoningContent":
            thought = block.setdefault("reasoningContent", {})
            for key, value in said.items():
                grow(thought, key, value)
        elif part != "citation":
            raise CannotReplay(part)


def _whole_block(block: dict[str, Any]) -> bytes:
    """Return a block as JSON; empty if it says nothing. Raises CannotReplay for a block that cannot be encoded."""
    block = joined(block)
    if "toolUse" in block:
        use = joined(block["toolUse"])
        if not (use.get("name") and isinstance(use["name"], str)):
            return b""
        block = {"toolUse": use | {"input": raw_object(use.get("input") or "", "toolUse")}}
    elif "reasoningContent" in block:
        thought = joined(block["reasoningContent"])
        said = {key: value for key, value in thought.items() if key in ("text", "signature")}
        block = {"reasoningContent": {"reasoningText": said} if said else thought}
    elif not block.get("text", "").strip():
        return b""
    return encoded(block, "contentBlock")


def is_unfinished(payloads: Iterable[Payload]) -> bool:
    """Whether the result of a tool that Bedrock runs is missing."""
    called: set[str] = set()
    answered: set[str] = set()
    for payload in payloads:
        _, said = event_in(payload)
        for block in (object_of(said.get("start")), *(_content_of(payload) or ())):
            use, result = object_of(object_of(block).get("toolUse")), object_of(object_of(block).get("toolResult"))
            if use.get("type") == SERVER_TOOL:
                called.add(str(use.get("toolUseId")))
            answered.add(str(result.get("toolUseId")))
    return bool(called - answered)
