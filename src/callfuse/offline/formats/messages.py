"""Histories as the vendors' APIs take them: a bare list of messages, an object with one, or a whole request body.

A body may have `id`, `session_id`, `source`, `success` beside its own keys, and the whole answer under `response`; or
all of it stands under `request`. Which vendor's it is, its messages show; the vendor's dialect then reads it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects import DIALECTS
from callfuse.dialects.base import Request
from callfuse.dialects.openai_responses.items import CALLS, RESULTS
from callfuse.model import ToolCall
from callfuse.offline.runs import BadRecord, Conversation, label_of
from callfuse.wire.jsontext import dumps

HISTORIES: Final = ("messages", "input", "contents")
"""The keys under which bodies have their history."""

_ITEMS: Final = frozenset({*CALLS, *RESULTS, "reasoning", "item_reference", "compaction"})
_BY_NAME: Final = {dialect.name: dialect for dialect in DIALECTS}
_ANSWERS: Final = (
    ("choices", list, "openai-chat"),
    ("candidates", list, "gemini"),
    ("output", list, "openai-responses"),
    ("output", dict, "bedrock-converse"),
    ("content", list, "anthropic"),
    ("message", dict, "ollama"),
)
"""Which whole answer is whose: a key, what stands under it, the dialect."""


def accepts(record: Any) -> bool:
    """Whether it is a list of messages, or has one."""
    if isinstance(record, list):
        return not record or is_message(record[0])
    return isinstance(record, dict) and _has_history(_body_of(record))


def read(record: Any, text: bytes) -> Iterator[Conversation]:
    """The conversation."""
    if isinstance(record, list):
        key = key_of(record)
        record, text = {key: record}, b'{"%b":%b}' % (key.encode(), text)
    body = _body_of(record)
    if body is not record:
        text = dumps(body)
    label = label_of({"model": body.get("model")} | record)
    yield Conversation(label, request_of(body, text), answer_of(record.get("response")))


def is_message(value: Any) -> bool:
    """Whether this is a message or item of a history rather than a record with one."""
    if not isinstance(value, dict) or any(
        isinstance(value.get(key), list) for key in ("messages", "contents", "calls")
    ):
        return False
    return "role" in value or value.get("type") in _ITEMS


def request_of(body: dict[str, Any], text: bytes) -> Request:
    """A body, whose text this is, as the dialect reads it that its messages show; raises BadRecord."""
    name = _dialect_of(body)
    if name == "anthropic":
        body = {"max_tokens": 0} | body  # what tells a whole body, and a bare history has not
    request = _BY_NAME[name].read_request(text, body)
    if request is None:
        raise BadRecord(f"is no request of {name}")
    return request


def answer_of(answer: Any) -> tuple[ToolCall, ...]:
    """The complete calls of the first choice of a whole answer; none where it is of no known shape."""
    if not isinstance(answer, dict):
        return ()
    name = next((name for key, shape, name in _ANSWERS if isinstance(answer.get(key), shape)), "")
    choices = _BY_NAME[name].read_whole(answer) if name else []
    return choices[0].complete() if choices else ()


def _body_of(record: dict[str, Any]) -> dict[str, Any]:
    """The request's body: what stands under `request`, or the record itself."""
    request = record.get("request")
    return request if isinstance(request, dict) and _has_history(request) else record


def _has_history(body: Any) -> bool:
    if not isinstance(body, dict):
        return False
    return any(isinstance(body.get(key), list) for key in HISTORIES) or ("input" in body and "model" in body)


def key_of(messages: Sequence[Any]) -> str:
    """The key under which a bare list of messages would stand in a body."""
    for message in messages:
        if isinstance(message, dict) and isinstance(message.get("parts"), list):
            return "contents"
        if isinstance(message, dict) and message.get("type") in _ITEMS:
            return "input"
    return "messages"


def _dialect_of(body: dict[str, Any]) -> str:
    """The dialect of a body."""
    if isinstance(body.get("contents"), list):
        return "gemini"
    if not isinstance(body.get("messages"), list):
        return "openai-responses"
    if "anthropic_version" in body:
        return "anthropic"
    return next((name for message in body["messages"] if (name := _told_by(message))), "openai-chat")


def _told_by(message: Any) -> str:
    """The dialect that a message shows; empty where it could be of several."""
    if not isinstance(message, dict):
        return ""
    if "tool_name" in message:
        return "ollama"
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result"):
            return "anthropic"
        if isinstance(block, dict) and ("toolUse" in block or "toolResult" in block):
            return "bedrock-converse"
    return ""
