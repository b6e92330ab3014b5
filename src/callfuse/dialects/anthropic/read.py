"""Tool uses of Anthropic messages, put together from content blocks or read from a whole body.

Only calls that the client executes are read: server-side tools have run already, and a call whose caller is not direct
belongs to a program that waits for it. The input may stand in the block's start, come as pieces of JSON, or both lack.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

CUTTING: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})
"""Stop reasons after which the last call may lack its end."""

_QUIET: Final[Sequence[Event]] = ()


def is_client_call(block: Any) -> bool:
    """Whether a content block is a call for the client, made by the model itself."""
    if not isinstance(block, dict) or block.get("type") != "tool_use":
        return False
    caller = block.get("caller")
    return not isinstance(caller, dict) or caller.get("type") == "direct"


class MessagesReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_by_index", "_has_reason", "calls", "entries")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []
        self._by_index: dict[int, OpenCall] = {}
        self._has_reason = False

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one event says of calls."""
        kind = payload.get("type")
        if kind == "content_block_delta":
            delta = payload.get("delta") or {}
            if delta.get("type") == "input_json_delta":
                call = self._by_index.get(payload.get("index", 0))
                if call is not None:
                    call.pieces.append(delta.get("partial_json") or "")
            return _QUIET
        if kind == "content_block_start":
            return self._start(payload)
        if kind == "content_block_stop":
            call = self._by_index.pop(payload.get("index", 0), None)
            if call is None:
                return _QUIET
            call.closed = True
            return (Event(What.CLOSED, 0, call),)
        if kind == "message_delta":
            reason = (payload.get("delta") or {}).get("stop_reason")
            self._has_reason |= bool(reason)
            if reason in CUTTING:
                return (Event(What.CUT, 0, self.calls[-1] if self.calls else None),)
            return (Event(What.FINISHED),) if reason else _QUIET
        if kind == "message_stop":
            return self._stop()
        if kind == "message_start":
            self._by_index.clear()
            return (Event(What.BROKE),) if self.calls else _QUIET
        return (Event(What.BROKE),) if kind == "error" else _QUIET

    def _stop(self) -> Sequence[Event]:
        """The message is over. Without a stop reason (some vendors send none) it is complete if all its calls are."""
        if self._has_reason or self._by_index:
            return (Event(What.ENDED),)
        return (Event(What.FINISHED), Event(What.ENDED))

    def _start(self, payload: Payload) -> Sequence[Event]:
        block: Payload = payload.get("content_block") or {}
        if not is_client_call(block):
            return _QUIET
        index = payload.get("index", 0)
        call = OpenCall(0, index, str(block.get("id") or ""), str(block.get("name") or ""))
        if block.get("input"):
            call.pieces.append(dumps(block["input"]).decode())
        self.calls.append(call)
        self._by_index[index] = call
        return (Event(What.OPENED, 0, call),)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    if payload.get("type") == "error":
        return []
    blocks = payload.get("content")
    calls = [
        ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), block.get("input"))
        for block in (blocks if isinstance(blocks, list) else ())
        if is_client_call(block)
    ]
    return [WholeChoice(0, tuple(calls), cut=payload.get("stop_reason") in CUTTING)]
