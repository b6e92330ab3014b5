"""Read LiteLLM's logs: the standard logging payload of its callbacks, and rows of its spend log.

The request is under `messages` (a list, or JSON text), or in newer spend logs under `proxy_server_request` (the body);
the answer is under `response`. If the client sends no session id, each request gets a new trace id, which the spend log
stores as `session_id`. So no id here shows which records belong to one conversation.
"""

from collections.abc import Iterator
from typing import Any

from callfuse.dialects.tokens import CHAT
from callfuse.offline.formats.messages import answer_of, has_history, key_of, request_of, texts_of, tokens_of
from callfuse.offline.runs import BadRecord, RecordedConversation, RunLabel, text_at
from callfuse.wire.jsontext import NotJSON, dumps, loads


def accepts(record: Any) -> bool:
    """Whether a record is such a payload, or the keyword arguments of a callback with such a payload."""
    record = _payload(record)
    return isinstance(record, dict) and "call_type" in record and ("messages" in record or "response" in record)


def read(record: Any, text: bytes) -> Iterator[RecordedConversation]:
    """Yield the conversation of a record."""
    record = _payload(record)
    id_ = text_at(record, "session_id") or text_at(record, "trace_id")
    id_ = id_ or text_at(record, "id") or text_at(record, "request_id")
    label = RunLabel(id_, model=text_at(record, "model"))
    body = _body(record)
    answer = _value(record.get("response"))
    request, tokens = request_of(body, dumps(body)), tokens_of(answer) or CHAT.read([{"usage": record}])
    yield RecordedConversation(label, request, answer_of(answer), texts_of(answer), tokens)


def _payload(record: Any) -> Any:
    return record.get("standard_logging_object", record) if isinstance(record, dict) else record


def _body(record: dict[str, Any]) -> dict[str, Any]:
    """Return the request's body. Raises BadRecord if the log does not have it."""
    sent = _value(record.get("proxy_server_request"))
    if isinstance(sent, dict):
        sent = sent.get("body", sent)
    if has_history(sent):
        return sent
    messages = _value(record.get("messages"))
    if isinstance(messages, list):
        return {key_of(messages): messages} | _tools(record)
    if isinstance(messages, str) and messages:
        return {"input": [{"role": "user", "content": messages}]} | _tools(record)
    if has_history(messages):
        return messages
    raise BadRecord("has no messages: LiteLLM keeps them where `store_prompts_in_spend_logs` is on")


def _tools(record: dict[str, Any]) -> dict[str, Any]:
    """Return the `tools` of the request's body; empty if the log does not have them."""
    parameters = _value(record.get("model_parameters"))
    tools = parameters.get("tools") if isinstance(parameters, dict) else None
    return {"tools": tools} if isinstance(tools, list) else {}


def _value(field: Any) -> Any:
    """Return the value of a field, parsed if it is JSON text."""
    if isinstance(field, str):
        try:
            return loads(field)
        except NotJSON:
            return field
    return field
