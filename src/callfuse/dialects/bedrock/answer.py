"""Answers of Bedrock's Converse: reads and changes whole ones, and encodes the binary stream of callfuse's own answers.

Only calls that the client executes are read; a tool use of type `server_tool_use` has run already. Blocks that stay
keep their bytes.

A message of an AWS event stream: total and header length, a CRC of both, headers (name, type 7, value), the payload, a
CRC of all of it. https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
"""

from binascii import crc32
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.base import Block, CannotReplay, WholeChoice
from callfuse.dialects.edits import raw_at, raw_elements, raw_list
from callfuse.dialects.shapes import is_one_of
from callfuse.dialects.usage import Usage
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, ExactValues, apply, dumps, loads

CUTTING: Final = frozenset(
    {"max_tokens", "content_filtered", "guardrail_intervened", "model_context_window_exceeded", "malformed_tool_use"}
)
"""Stop reasons after which the last call may be incomplete."""
OWN_REASONS: Final = frozenset({"tool_use", "end_turn"})
"""Stop reasons that a block replaces; `max_tokens` and the like stay."""
CONTENT: Final = ("output", "message", "content")
EVENT_STREAM: Final = b"application/vnd.amazon.eventstream"
_STRING: Final = b"\x07"
_FRAME: Final = 16
"""Bytes of the lengths and CRCs of a message."""


def calls_of(content: Any, exact_values: ExactValues | None = None, position: int = 0) -> list[ToolCall]:
    """The client's calls in content blocks: of an answer, or (with `exact_values`) of the message at `position` of a
    request."""
    calls = []
    for at, use in tool_uses(content):
        path = ("messages", position, "content", at, "toolUse", "input")
        exact = partial(exact_values.read, *path) if exact_values else None
        calls.append(
            ToolCall(str(use.get("toolUseId") or ""), str(use.get("name") or ""), use.get("input"), exact=exact)
        )
    return calls


def tool_uses(content: Any) -> Iterator[tuple[int, Payload]]:
    """The client's tool uses in content blocks, each with the block's index."""
    for at, block in enumerate(content if isinstance(content, list) else ()):
        use = block.get("toolUse") if isinstance(block, dict) else None
        if isinstance(use, dict) and use.get("type") != "server_tool_use":
            yield at, use


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    content = _content_of(payload)
    if content is None:
        return []
    return [WholeChoice(0, tuple(calls_of(content)), cut=is_one_of(payload.get("stopReason"), CUTTING))]


def _content_of(payload: Any) -> Any:
    """The content of a whole answer's message; None if it has none."""
    output = payload.get("output") if isinstance(payload, dict) else None
    message = output.get("message") if isinstance(output, dict) else None
    return message.get("content") if isinstance(message, dict) else None


def model_turn_of_whole(body: bytes) -> bytes:
    """The message of a whole answer, byte for byte. Raises CannotReplay if there is none."""
    message = raw_at(body, CONTENT[:2])
    if message.startswith(b"{"):
        return message
    raise CannotReplay("message")


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
    """The answer without the calls at these (choice, call) places. A block adds its text and ends the turn."""
    payload = loads(body)
    places = [at for at, _ in tool_uses(_content_of(payload))]
    edits = [Edit((*CONTENT, places[place]), None) for _, place in withheld]
    if block := blocks.get(0):
        edits.append(Edit((*CONTENT, END), dumps({"text": block.text})))
        if is_one_of(payload.get("stopReason"), OWN_REASONS):
            edits.append(Edit(("stopReason",), b'"end_turn"'))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool, structured: bool) -> bytes:
    """The second answer with the first one's blocks in front (not its texts, if they must fit a schema), and the usage
    of both. Its reasoning is left out if the first has blocks, or if it is from another model (`foreign`)."""
    one, other = loads(first), loads(second)
    before = zip(raw_elements(first, CONTENT), _content_of(one) or (), strict=True)
    blocks = [raw for raw, block in before if not (structured and isinstance(block, dict) and "text" in block)]
    may_reason = not (blocks or foreign)
    for raw, block in zip(raw_elements(second, CONTENT), _content_of(other) or (), strict=True):
        if may_reason or not reasons(block):
            blocks.append(raw)
    edits = [Edit(CONTENT, raw_list(blocks))]
    usage = Usage("inputTokens", "outputTokens", "totalTokens", summed=summed)
    if total := usage.of_both(one.get("usage"), other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def reasons(block: Any) -> bool:
    """Whether a content block is reasoning, whose signature is valid for one model only."""
    return isinstance(block, dict) and "reasoningContent" in block


def event_message(event: Payload) -> bytes:
    """An event (an object with its type as the only key) as a binary message."""
    ((kind, said),) = event.items()
    payload = dumps(said)
    pairs = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(_sized(name.encode(), 1) + _STRING + _sized(value.encode(), 2) for name, value in pairs.items())
    lengths = _number(_FRAME + len(headers) + len(payload)) + _number(len(headers))
    message = lengths + _number(crc32(lengths)) + headers + payload
    return message + _number(crc32(message))


def _sized(text: bytes, size: int) -> bytes:
    return len(text).to_bytes(size) + text


def _number(value: int) -> bytes:
    return value.to_bytes(4)
