"""Read histories in the vendors' own formats: a bare list of messages, an object with such a list, or a whole request
body.

A body may have the further keys `id`, `session_id`, `source` and `success`, and the whole answer under `response`; or
the body is under `request`. The dialect that recognises it reads it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from callfuse.dialects import recognise_answer, recognise_request
from callfuse.dialects.base import Request
from callfuse.guard.growing_texts import FoundText, GrowingTexts
from callfuse.model import ToolCall
from callfuse.model.spent import Tokens
from callfuse.offline.runs import BadRecord, RecordedConversation, label_of
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import dumps


def accepts(record: Any) -> bool:
    """Whether a record is a list of messages, or contains one."""
    if isinstance(record, list):
        return not record or is_message(record[0])
    return isinstance(record, dict) and has_history(_body_of(record))


def read(record: Any, text: bytes) -> Iterator[RecordedConversation]:
    """Yield the conversation of a record. Raises BadRecord."""
    if isinstance(record, list):
        key = key_of(record)
        record, text = {key: record}, b'{"%b":%b}' % (key.encode(), text)
    body = _body_of(record)
    if body is not record:
        text = dumps(body)
    label = label_of({"model": body.get("model")} | record)
    answer = record.get("response")
    yield RecordedConversation(label, request_of(body, text), answer_of(answer), texts_of(answer), tokens_of(answer))


def is_message(value: Any) -> bool:
    """Whether a value is a message (or item) of a history, not a record with a history."""
    if not isinstance(value, dict) or isinstance(value.get("calls"), list) or has_history(value):
        return False
    return recognise_request([value]) is not None


def has_history(body: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a request body that a dialect recognises."""
    return isinstance(body, dict) and recognise_request(body) is not None


def request_of(body: dict[str, Any], text: bytes) -> Request:
    """Return the request in a body, read by its dialect. `text`: the body's JSON. Raises BadRecord."""
    found = recognise_request(body)
    if found is None:
        raise BadRecord("is not a request of a known API")
    dialect, body = found
    request = dialect.read_request(text, body)
    if request is None:
        raise BadRecord(f"is not a request of {dialect.name}")
    return request


def answer_of(answer: Any) -> tuple[ToolCall, ...]:
    """Return the complete calls of the first choice of a whole answer; empty if no dialect recognises it."""
    found = recognise_answer(answer)
    choices = found[0].read_whole(found[1]) if found else []
    return choices[0].complete() if choices else ()


def texts_of(answer: Any) -> tuple[FoundText, ...]:
    """Return the runaway texts in a whole answer; empty if no dialect recognises it."""
    found = recognise_answer(answer)
    if found is None:
        return ()
    texts = GrowingTexts(LoopSettings(), whole=True)
    texts.room = -1
    texts.read_frame(*found)
    return tuple(texts.take())


def tokens_of(answer: Any) -> Tokens | None:
    """Return the token counts in a whole answer; None if it has none."""
    found = recognise_answer(answer)
    return found[0].counts.read([found[1]]) if found else None


def _body_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the request's body: the value under `request`, or the record itself."""
    request = record.get("request")
    return request if has_history(request) else record


def key_of(messages: Sequence[Any]) -> str:
    """Return the key that a bare list of messages would have in a body."""
    found = recognise_request(messages)
    return next((key for key, value in found[1].items() if value is messages), "messages") if found else "messages"
