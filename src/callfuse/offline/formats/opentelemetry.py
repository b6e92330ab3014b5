"""Read OpenTelemetry's GenAI spans and events: `gen_ai.input.messages` and `gen_ai.output.messages`.

They come as OTLP JSON (a line of its file exporter: `resourceSpans` or `resourceLogs`, with typed values), or as a span
with plain attributes. The conventions are in development; this reads these parts of their message schema: `text`,
`tool_call` and `tool_call_response` (pydantic-ai has `result` for `response`). Calls that the vendor runs itself are
left out. The messages are converted to OpenAI chat completions, and that dialect reads them.
"""

from collections.abc import Iterator
from typing import Any, Final

from callfuse.dialects.tokens import RESPONSES
from callfuse.model import ToolCall
from callfuse.offline.formats.messages import answer_of, request_of
from callfuse.offline.runs import BadRecord, RecordedConversation, RunLabel, kind_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, dumps, loads

INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
SYSTEM: Final = "gen_ai.system_instructions"
TOOLS: Final = "gen_ai.tool.definitions"
USAGE: Final = "gen_ai.usage."

_OTLP: Final = (
    ("resourceSpans", "scopeSpans", "spans"),
    ("resourceLogs", "scopeLogs", "logRecords"),
)
_SCALARS: Final = ("stringValue", "boolValue", "intValue", "doubleValue")


def accepts(record: Any) -> bool:
    """Whether a record is an export of spans or logs, or a single span or log record with messages."""
    if not isinstance(record, dict):
        return False
    if any(isinstance(record.get(outer), list) for outer, _, _ in _OTLP):
        return True
    return any(key in _plain(record.get("attributes")) for key in (INPUT, OUTPUT))


def read(record: Any, text: bytes) -> Iterator[RecordedConversation | BadRecord]:
    """Yield a conversation for each span, event and log record that has messages."""
    for service, holder in _holders(record):
        trace = holder.get("context")
        trace_id = holder.get("traceId") or (trace.get("trace_id") if isinstance(trace, dict) else "")
        events = holder.get("events")
        for one in (holder, *(events if isinstance(events, list) else ())):
            attributes = _plain(one.get("attributes")) if isinstance(one, dict) else {}
            if INPUT in attributes or OUTPUT in attributes:
                try:
                    yield _conversation(attributes, service, str(trace_id or ""))
                except BadRecord as error:
                    yield error


def _holders(record: Payload) -> Iterator[tuple[str, Payload]]:
    """Yield each span and log record with the name of its service."""
    exports = [(record[keys[0]], *keys[1:]) for keys in _OTLP if isinstance(record.get(keys[0]), list)]
    if not exports:
        yield _service(record), record
    for resources, scopes, holders in exports:
        for resource in resources:
            for scope in resource.get(scopes) or ():
                for holder in scope.get(holders) or ():
                    yield _service(resource), holder


def _service(holder: Payload) -> str:
    resource = holder.get("resource")
    return str(_plain(resource.get("attributes")).get("service.name", "")) if isinstance(resource, dict) else ""


def _conversation(attributes: Payload, service: str, trace_id: str) -> RecordedConversation:
    session = str(attributes.get("gen_ai.conversation.id") or "")
    model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
    label = RunLabel(session or trace_id, session, service, str(model or ""))
    history = [{"role": "system", "content": str(attributes.get(SYSTEM) or "")}]
    for message in _messages_at(attributes, INPUT):
        history += _as_chat(message)
    body = {"messages": history, "tools": _tools(attributes)}
    usage = {name.removeprefix(USAGE): value for name, value in attributes.items() if name.startswith(USAGE)}
    tokens = RESPONSES.read([{"usage": usage}])
    return RecordedConversation(label, request_of(body, dumps(body)), _answer(attributes), tokens=tokens)


def _tools(attributes: Payload) -> list[Payload]:
    """Return the tools as OpenAI chat completions declare them; empty if the export has no complete list."""
    try:
        listed = _messages_at(attributes, TOOLS)
    except BadRecord:
        return []
    return [{"type": "function", "function": {"name": tool.get("name")}} for tool in listed if isinstance(tool, dict)]


def _answer(attributes: Payload) -> tuple[ToolCall, ...]:
    """Return the calls of the first choice. Each message of the output is a choice."""
    choices = _messages_at(attributes, OUTPUT)[:1]
    messages = [message for choice in choices for message in _as_chat(choice) if message["role"] == "assistant"]
    return answer_of({"choices": [{"message": message} for message in messages]})


def _messages_at(attributes: Payload, key: str) -> list[Any]:
    """Return the messages of an attribute, parsed if they are JSON text. Raises BadRecord."""
    value = attributes.get(key) or []
    if isinstance(value, str):
        try:
            value = loads(value)
        except NotJSON as error:
            raise BadRecord(f"{key} is not JSON (cut by the exporter?): {error}") from None
    if not isinstance(value, list):
        raise BadRecord(f"{key} is {kind_of(value)}; use a list of messages")
    return value


def _as_chat(message: Any) -> Iterator[Payload]:
    """Convert a message to OpenAI chat completions: a message for each result, then one for the rest."""
    parts = message.get("parts") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        raise BadRecord("a message has no parts: only conventions from 1.37 on are read")
    content: list[Payload] = []
    calls: list[Payload] = []
    for part in parts:
        match part:
            case {"builtin": True}:
                pass
            case {"type": "tool_call", "name": str(name)}:
                arguments = part.get("arguments")
                text = (
                    arguments if isinstance(arguments, str) else "" if arguments is None else dumps(arguments).decode()
                )
                calls.append({"id": str(part.get("id") or ""), "function": {"name": name, "arguments": text}})
            case {"type": "tool_call_response"}:
                result = part.get("response", part.get("result"))
                yield {"role": "tool", "tool_call_id": str(part.get("id") or ""), "content": result}
            case {"type": "text"}:
                content.append({"type": "text", "text": str(part.get("content") or "")})
            case {"type": str(kind)}:
                content.append({"type": kind})
            case _:
                raise BadRecord(f"a part is {kind_of(part)}; use an object with a type")
    if content or calls:
        yield {"role": message.get("role"), "content": content, "tool_calls": calls}


def _plain(attributes: Any) -> Payload:
    """Attributes as an object; OTLP has a list of keys and typed values instead."""
    if isinstance(attributes, dict):
        return attributes
    listed = attributes if isinstance(attributes, list) else ()
    return {str(one.get("key")): _plain_value(one.get("value")) for one in listed if isinstance(one, dict)}


def _plain_value(value: Any) -> Any:
    """Return the plain value of an OTLP typed value."""
    if not isinstance(value, dict):
        return None
    for key in _SCALARS:
        if key in value:
            return value[key]
    if isinstance(array := value.get("arrayValue"), dict):
        return [_plain_value(one) for one in array.get("values") or ()]
    if isinstance(pairs := value.get("kvlistValue"), dict):
        return _plain(pairs.get("values"))
    return None
