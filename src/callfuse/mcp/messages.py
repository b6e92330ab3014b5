"""Read the JSON-RPC messages of MCP that concern calls of tools, and write answers to them. Does no IO.

Input: bodies of POSTs, and the data of answers. Output: `Posted` and `Response`, and bytes in which everything else
stays unchanged. Unknown messages are left alone. `read_post` and `read_responses` raise `NotJSON` if nothing can be
read.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from callfuse.wire.jsontext import END, Edit, Path, UnreadableJSON, apply, dumps, loads, span, spans
from callfuse.wire.values import has_too_many_values

CALL: Final = "tools/call"
LIST: Final = "tools/list"
CANCELLED: Final = "notifications/cancelled"
OPENING: Final = frozenset({"initialize", "server/discover"})
"""The methods with which a client begins."""
MODERN: Final = "2026-07-28"
"""The first revision without sessions, whose results have a `resultType`. Revisions are dates, which sort as texts."""
LONGEST_NAME: Final = 1024
"""The most characters of a tool's name, and bytes of an id. Calls with longer ones are left alone. The protocol allows
128 for names."""
MOST_CALLS: Final = 128
"""The most calls of one batch. A batch with more passes unread."""
_META: Final = "_meta"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_NOTHING: Final[Mapping[str, Any]] = {}
_TIMELESS: Final = frozenset({_META, "annotations"})
"""Members of a content block that are not its content, such as the time of modification."""
_OF_A_CALL: Final = frozenset({"name", "arguments", "inputResponses", "requestState", _META})
"""Parameters of a call that do not identify a user, or are checked separately."""
_OF_A_MESSAGE: Final = frozenset(
    {
        *("progresstoken", "traceparent", "tracestate", "traceid", "spanid", "requestid", "messageid", "turnid"),
        *("callid", "toolcallid", "tooluseid", "claudecode/tooluseid"),
    }
)
"""Names in `_meta`, in lower case and without `_`, whose values differ between messages of one client."""
_DIGEST_SIZE: Final = 16
_OF_PROTOCOL: Final = frozenset({_META, "resultType", "isError", "ttlMs", "cacheScope"})


class CallRequest(NamedTuple):
    """One request `tools/call`.

    `at`: its index in a batch, 0 without one. `id`: as JSON; `key`: matches its response. `arguments`: as in the body,
    `{}` if missing. `continues`: the client sends the input that a call of the same name and arguments has asked for.
    `about`: a digest of the rest of the message, except values that differ each time.
    """

    at: int
    id: bytes
    key: bytes
    name: str
    arguments: str
    continues: bool
    about: bytes


class Posted(NamedTuple):
    """The messages of one POST.

    `rest`: the number of messages other than `calls`. `tasks`: how many of these are calls that ask for a task handle
    instead of a result (2025-11-25), which only the server can create. `cancelled`: the keys of cancelled requests.
    `lists`: the keys of requests for the list of tools. `opens`: whether a client begins with it. `meta`: the `_meta`
    of the first message.
    """

    is_batch: bool
    calls: list[CallRequest]
    rest: int
    tasks: int
    cancelled: list[bytes]
    lists: list[bytes]
    opens: bool
    meta: Mapping[str, Any]

    @property
    def is_modern(self) -> bool:
        """Whether the first message declares a revision without sessions."""
        version = self.meta.get(_VERSION)
        return isinstance(version, str) and version >= MODERN


class ResponseKind(Enum):
    """The kind of a response to a call."""

    FINAL = "final"
    INPUT = "input"
    """The server asks the client for input, and the client then sends the call again with it."""
    TASK = "task"
    """The handle of a running task."""


class Response(NamedTuple):
    """One response in the data of an answer. `path`: its place there. `text`: its text there. `error`: its JSON-RPC
    error, if any."""

    path: Path
    text: bytes
    key: bytes
    result: dict[str, Any]
    error: dict[str, Any] | None

    @property
    def kind(self) -> ResponseKind:
        """The kind of the response."""
        if self.error is not None:
            return ResponseKind.FINAL
        told = self.result.get("resultType")
        if told == "input_required":
            return ResponseKind.INPUT
        is_task = told == "task" or ("content" not in self.result and isinstance(self.result.get("task"), dict))
        return ResponseKind.TASK if is_task else ResponseKind.FINAL


def read_post(content: bytes) -> Posted:
    """Read the body of a POST. Raises NotJSON."""
    if has_too_many_values(content):
        raise UnreadableJSON("too many values")
    payload = loads(content)
    is_batch = isinstance(payload, list)
    messages = payload if is_batch else [payload]
    texts = _elements(content) if is_batch else [content]
    read = [_read_call(text, at, one) for at, (text, one) in enumerate(zip(texts, messages, strict=True))]
    calls = [call for call in read if call is not None]
    if len(calls) > MOST_CALLS:
        raise UnreadableJSON("too many calls")
    params = [_params(message) for message in messages if _method(message) == CANCELLED]
    return Posted(
        is_batch,
        calls,
        len(messages) - len(calls),
        sum(map(_asks_for_task, messages)),
        [key_of(one["requestId"]) for one in params if "requestId" in one],
        _lists(messages),
        any(_method(message) in OPENING for message in messages),
        _meta(messages[0]) if messages else _NOTHING,
    )


def _lists(messages: Iterable[Any]) -> list[bytes]:
    """Return the keys of requests for the list of tools."""
    return [key_of(message.get("id")) for message in messages if _method(message) == LIST]


def key_of(id_: object) -> bytes:
    """Return a key that is equal for equal ids: `1` is not `"1"`."""
    return dumps(id_)


def _elements(batch: bytes) -> Iterator[bytes]:
    """Yield the texts of the messages of a batch."""
    return (batch[member.value : member.end] for member in spans(batch))


def _read_call(text: bytes, at: int, message: Any) -> CallRequest | None:
    """Read the call in a message; None if it has none, is malformed, or must be left alone."""
    if _method(message) != CALL or not isinstance(message.get("id"), str | int | float) or _asks_for_task(message):
        return None
    params, key, arguments = _params(message), key_of(message["id"]), "{}"
    if not isinstance(name := params.get("name"), str) or len(name) > LONGEST_NAME or len(key) > LONGEST_NAME:
        return None
    if params.get("arguments") is not None and (place := span(text, ("params", "arguments"))):
        arguments = text[slice(*place)].decode("utf-8", "surrogatepass")
    goes_on = "inputResponses" in params or "requestState" in params
    id_ = text[slice(*(span(text, ("id",)) or (0, 0)))]
    return CallRequest(at, id_, key, name, arguments, goes_on, _about(message))


def _about(message: Mapping[str, Any]) -> bytes:
    """Return a digest of a request without its call; see `CallRequest`."""
    params = _params(message)
    others = {name: value for name, value in message.items() if name not in ("id", "params", "jsonrpc", "method")}
    rest = {name: value for name, value in params.items() if name not in _OF_A_CALL}
    said = {name: _lasting(value) for name, value in _lasting(_meta(message)).items()}
    return blake2b(dumps([others, rest, said]), digest_size=_DIGEST_SIZE).digest()


def _lasting(value: Any) -> Any:
    """Return an object without the keys that differ between messages, and anything else unchanged."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if name.lower().replace("_", "") not in _OF_A_MESSAGE}


def _asks_for_task(message: Any) -> bool:
    return _method(message) == CALL and isinstance(_params(message).get("task"), dict)


def _method(message: Any) -> str:
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else ""


def _params(message: Any) -> Mapping[str, Any]:
    params = message.get("params") if isinstance(message, dict) else None
    return params if isinstance(params, dict) else _NOTHING


def _meta(message: Any) -> Mapping[str, Any]:
    meta = _params(message).get(_META)
    return meta if isinstance(meta, dict) else _NOTHING


def without(content: bytes, calls: Iterable[CallRequest]) -> bytes:
    """Return a batch without these calls."""
    return apply(content, [Edit((call.at,), None) for call in calls])


def read_responses(data: bytes) -> list[Response]:
    """Read the responses in the data of an answer: one message, or a batch. Raises NotJSON."""
    if not (b"result" in data or b"error" in data):  # a notification: there may be many
        return []
    if has_too_many_values(data):
        raise UnreadableJSON("too many values")
    payload = loads(data)
    if not isinstance(payload, list):
        found = [_read_response((), data, payload)]
    else:
        pairs = zip(_elements(data), payload, strict=True)
        found = [_read_response((at,), text, message) for at, (text, message) in enumerate(pairs)]
    return [one for one in found if one is not None]


def _read_response(path: Path, text: bytes, message: Any) -> Response | None:
    if not isinstance(message, dict) or "method" in message or "id" not in message:
        return None
    result, error = message.get("result"), message.get("error")
    if isinstance(error, dict):
        return Response(path, text, key_of(message["id"]), {}, error)
    return Response(path, text, key_of(message["id"]), result, None) if isinstance(result, dict) else None


def content_of(response: Response) -> tuple[Any, bool | None]:
    """Return a response's content in the form that detectors read, and whether it is an error (None: judged by its
    words, because servers report errors as plain results, too). Values that change with each response are left out."""
    if response.error is not None:
        said = [{"type": "text", "text": str(response.error.get("message", ""))}]
        return [*said, *_if_any(response.error.get("data"))], True
    result = response.result
    is_error = True if result.get("isError") is True else None
    content = result.get("content")
    if not isinstance(content, list):
        return {name: value for name, value in result.items() if name not in _OF_PROTOCOL}, is_error
    blocks = [_without(block, _TIMELESS) for block in content]
    return [*blocks, *_if_any(result.get("structuredContent"))], is_error


def _if_any(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _without(value: Any, names: frozenset[str]) -> Any:
    if not isinstance(value, dict) or names.isdisjoint(value):
        return value
    return {name: item for name, item in value.items() if name not in names}


class Kept(NamedTuple):
    """The unchanged result of a call. `has_structure`: it has structured content."""

    text: bytes
    has_structure: bool


def result_to_keep(response: Response) -> Kept | None:
    """Return the result of a call in a form that can be repeated. A JSON-RPC error becomes a result, so that models can
    read it. None if it is not a result of a tool."""
    if response.error is not None:
        block = {"type": "text", "text": str(response.error.get("message", ""))}
        return Kept(dumps({"content": [block], "isError": True}), has_structure=False)
    place = span(response.text, ("result",))
    if place is None or not isinstance(response.result.get("content"), list):
        return None
    return Kept(response.text[slice(*place)], response.result.get("structuredContent") is not None)


def read_only_tools(response: Response) -> dict[str, bool] | None:
    """Return the names in a list of tools, each with whether the server declares the tool as read-only. None if it is
    not such a list."""
    tools = response.result.get("tools")
    if not isinstance(tools, list):
        return None
    named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    return {tool["name"]: _says_read_only(tool.get("annotations")) for tool in named}


def _says_read_only(annotations: Any) -> bool:
    if not isinstance(annotations, dict) or annotations.get("destructiveHint") is True:
        return False
    return annotations.get("readOnlyHint") is True


def notice_edit(response: Response, notice: str) -> Edit | None:
    """Return the edit that adds a notice to a response: as a further block of text, or at the end of an error's
    message."""
    if response.error is not None:
        text = f"{response.error.get('message', '')}\n\n{notice}"
        return Edit((*response.path, "error", "message"), dumps(text))
    if not isinstance(response.result.get("content"), list):
        return None
    return Edit((*response.path, "result", "content", END), _block(notice))


def reply(id_: bytes, kept: Kept | None, notice: str, *, is_error: bool, is_modern: bool) -> bytes:
    """Write the response to a call that has not run: a kept result, and the notice.

    Without a kept result it is an error, because clients check other results against the tool's output schema. It is
    also an error if the kept result has structured content, because some clients show the model only that, and not the
    notice.
    """
    edits = [Edit(("content", END), _block(notice))]
    if is_error or kept is None or kept.has_structure:
        edits.append(Edit(("isError",), b"true"))
    if is_modern:
        edits.append(Edit(("resultType",), b'"complete"'))
    result = apply(b'{"content":[]}' if kept is None else kept.text, edits)
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"result":' + result + b"}"


def _block(notice: str) -> bytes:
    return dumps({"type": "text", "text": notice})
