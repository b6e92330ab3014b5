"""The model's own turn, as an assistant message of the next request.

Everything that vendors want back goes back as it came: reasoning in its three spellings, details with signatures,
what a vendor added to a call. A part that cannot be put together again raises AskError.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import AskError
from callfuse.dialects.openai_chat.read import ChatReader
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, span

TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
LISTS: Final = ("annotations",)
_READ_ELSEWHERE: Final = frozenset({"role", "tool_calls", "function_call"})
_GROWING: Final = frozenset({"text", "summary", "data"})
"""Strings of a reasoning detail that come in pieces."""


def turn(payloads: Sequence[Payload]) -> bytes:
    """The assistant message that the chunks of one choice come to."""
    reader = ChatReader()
    message: Payload = {"role": "assistant", "content": None}
    for payload in payloads:
        reader.read(payload)
        for choice in payload.get("choices") or ():
            for key, value in (choice.get("delta") or {}).items():
                if value and key not in _READ_ELSEWHERE:
                    _add(message, key, value)
    calls = [
        call.extra | {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reader.calls
    ]
    if _is_legacy(payloads):
        message["function_call"] = calls[0]["function"]
    else:
        message["tool_calls"] = calls
    return dumps(message)


def turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """The message of a whole answer, without the keys that say nothing."""
    place = span(body, ("choices", 0, "message"))
    if place is None:
        raise AskError("message")
    message = payload["choices"][0]["message"]
    empty = [Edit((key,), None) for key, value in message.items() if value in (None, [], "") and key != "content"]
    return apply(body[place[0] : place[1]], empty)


def _is_legacy(payloads: Sequence[Payload]) -> bool:
    return any(
        (choice.get("delta") or {}).get("function_call")
        for payload in payloads
        for choice in payload.get("choices") or ()
    )


def _add(message: Payload, key: str, value: Any) -> None:
    """Add one delta's value to the message."""
    if key in TEXTS and isinstance(value, str):
        message[key] = (message.get(key) or "") + value
    elif key in LISTS and isinstance(value, list):
        message.setdefault(key, []).extend(value)
    elif key == "reasoning_details" and isinstance(value, list):
        details: list[Payload] = message.setdefault(key, [])
        for detail in value:
            _add_detail(details, detail)
    else:
        raise AskError(f"delta.{key}")


def _add_detail(details: list[Payload], new: Any) -> None:
    """Grow the reasoning detail of the same index and type, or begin one."""
    if not isinstance(new, dict):
        raise AskError("delta.reasoning_details")
    same = ("index", "type", "id") if "index" not in new else ("index", "type")
    last = details[-1] if details else None
    if last is None or any(last.get(key) != new.get(key) for key in same):
        details.append(dict(new))
        return
    for key, value in new.items():
        if key in _GROWING and isinstance(value, str) and isinstance(last.get(key), str):
            last[key] += value
        elif value is not None:
            last[key] = value
