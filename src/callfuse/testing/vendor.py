"""Run the scripted vendor: an ASGI app that answers by a script, in the wire format of the path, streamed or whole.

It keeps all requests and counts the billed tokens. Apart from the pause between frames it uses no clock and no random
numbers, so the same requests get the same bytes. It accepts any history, unless it has `rules`.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from typing import Any

import anyio
import orjson

from callfuse.testing.anthropic import AnthropicVendor
from callfuse.testing.bedrock import BedrockInvokeVendor, BedrockVendor
from callfuse.testing.cohere import CohereVendor
from callfuse.testing.gemini import GeminiArrayVendor, GeminiVendor, wants_array
from callfuse.testing.interactions import InteractionsVendor, StepMemory
from callfuse.testing.ollama import OllamaVendor
from callfuse.testing.openai_chat import OpenAIChatVendor
from callfuse.testing.openai_responses import OpenAIResponsesVendor
from callfuse.testing.script import Answer, Choices, Fault, FaultKind, Reply, Script, Usage, VendorRequest
from callfuse.testing.turn import Turn, VendorDialect, dumps, objects

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DIALECTS: tuple[VendorDialect, ...] = (
    OpenAIChatVendor(),
    OpenAIResponsesVendor(),
    AnthropicVendor(),
    GeminiVendor(),
    InteractionsVendor(),
    OllamaVendor(),
    CohereVendor(),
    BedrockVendor(),
    BedrockInvokeVendor(),
)
"""Every imitated API. A new one needs a file in `testing/`, and a line here."""
Rules = Callable[[str, Mapping[str, Any]], Iterable[str]]
"""Gets the name of a dialect and the parsed body of a request, and returns a sentence for each broken rule."""
CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})
REDACTED = "[redacted]"
UNKNOWN_RESPONSE = "previous_response_id: Previous response not found."

_JSON = [(b"content-type", b"application/json")]
_UNCACHED = (b"cache-control", b"no-cache")


class ScriptedVendor:
    """An ASGI app that imitates OpenAI (`.../chat/completions`), Anthropic (`.../v1/messages`) and others from one
    script.

    `script`: a function of the request, sync or async, or a sequence of answers given in order (further requests get
    400). `chunk_delay_s`: seconds to wait before each frame of a stream (default 0). `piece_chars`: characters of text
    per frame (default 12; ValueError below 1). `rules`: rules for requests (default: none). If a request breaks some,
    the vendor answers 400 with the first one, and the script does not see the request.
    """

    def __init__(
        self, script: Script, *, chunk_delay_s: float = 0.0, piece_chars: int = 12, rules: Rules | None = None
    ) -> None:
        if piece_chars < 1:
            raise ValueError(f"piece_chars must be at least 1, not {piece_chars}")
        self._script = script
        self._chunk_delay_s = chunk_delay_s
        self._piece_chars = piece_chars
        self._rules = rules
        self._answered = 0
        self._memories: dict[str, Memory | StepMemory] = {
            OpenAIResponsesVendor.name: Memory(),
            InteractionsVendor.name: StepMemory(),
        }
        self.requests: list[VendorRequest] = []
        """All requests that could be parsed, including refused ones, in order."""
        self.billed = Usage()
        """The tokens of all answers begun so far."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Lifespans are acknowledged; websockets are closed."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        raw = await _body(receive)
        dialect = _dialect(scope)
        if raw is None:
            return
        if dialect is None or scope["method"] != "POST":
            served = "POST .../chat/completions, .../v1/messages and .../api/chat"
            message = f"{scope['method']} {scope['path']} is not served here, only {served}"
            await _send_whole(send, 404, dumps((dialect or DIALECTS[0]).error(404, message)))
            return
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            body = error
        if not isinstance(body, dict):
            await _send_whole(send, 400, dumps(dialect.error(400, f"the body is not a JSON object: {body}")))
            return
        request = self._record(dialect, scope, body, raw)
        if request.violations:
            await _send_whole(send, 400, dumps(dialect.error(400, request.violations[0])))
            return
        reply = await self._reply(request)
        if isinstance(reply, Fault) and reply.kind is FaultKind.STATUS:
            await _send_whole(send, reply.status, dumps(dialect.error(reply.status, reply.message)))
            return
        turn = Turn(request, self._choices(dialect, request, reply), self._piece_chars)
        self.billed += turn.usage
        if memory := self._memories.get(dialect.name):
            memory.keep(body, dialect.whole(turn))
        fault = reply if isinstance(reply, Fault) else None
        if request.streams:
            await self._stream(send, dialect, turn, fault)
        else:
            await _whole(send, dialect, turn, fault)

    def _record(self, dialect: VendorDialect, scope: Message, body: dict[str, Any], raw: bytes) -> VendorRequest:
        names = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"])
        memory = self._memories.get(dialect.name)
        known = memory.recall(body) if memory else body
        calls, results = dialect.last_round(known or body)
        request = VendorRequest(
            number=len(self.requests) + 1,
            dialect=dialect.name,
            path=scope["path"],
            headers={name: REDACTED if name in CREDENTIALS else value for name, value in names},
            body=body,
            raw=raw,
            calls=calls,
            results=results,
            violations=self._broken(dialect.name, known),
        )
        self.requests.append(request)
        return request

    def _broken(self, dialect: str, body: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Return the rules that a request breaks. `body`: None if the request continues a response that is not
        stored."""
        if self._rules is None:
            return ()
        return (UNKNOWN_RESPONSE,) if body is None else tuple(self._rules(dialect, body))

    async def _reply(self, request: VendorRequest) -> Reply:
        if isinstance(self._script, Sequence):
            at, self._answered = self._answered, self._answered + 1
            if at < len(self._script):
                return self._script[at]
            return Fault.http(400, f"the script holds {len(self._script)} answers, and this request is one too many")
        reply = self._script(request)
        return await reply if inspect.isawaitable(reply) else reply

    def _choices(self, dialect: VendorDialect, request: VendorRequest, reply: Reply) -> Choices:
        count = dialect.choice_count(request.body)
        if isinstance(reply, Fault):
            return (reply.answer,) * count
        if isinstance(reply, Answer):
            return (reply,) * count
        if len(reply) != count:
            raise ValueError(f"the request asks for {count} choices, the script gave {len(reply)}")
        return reply

    async def _stream(self, send: Send, dialect: VendorDialect, turn: Turn, fault: Fault | None) -> None:
        headers = [(b"content-type", dialect.stream_type), _UNCACHED]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in _frames(dialect, turn, fault):
            if self._chunk_delay_s:
                await anyio.sleep(self._chunk_delay_s)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        if fault is None or fault.kind is not FaultKind.CUT:  # a cut stream has no final message
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _dialect(scope: Message) -> VendorDialect | None:
    dialect = next((d for d in DIALECTS if d.serves(scope["path"])), None)
    if isinstance(dialect, GeminiVendor) and wants_array(scope["path"], scope.get("query_string", b"")):
        return GeminiArrayVendor()
    return dialect


def _frames(dialect: VendorDialect, turn: Turn, fault: Fault | None) -> Iterator[bytes]:
    frames = dialect.frames(turn)
    if fault is None:
        yield from frames
        return
    yield from islice(frames, fault.after_frames)
    if fault.kind is FaultKind.ERROR_EVENT:
        yield dialect.error_frame(fault.message)
    elif fault.kind is FaultKind.MALFORMED:
        yield dialect.malformed_frame()
        yield from frames


async def _whole(send: Send, dialect: VendorDialect, turn: Turn, fault: Fault | None) -> None:
    if fault is not None and fault.kind is FaultKind.ERROR_EVENT:
        await _send_whole(send, 500, dumps(dialect.error(500, fault.message)))
        return
    body = dumps(dialect.whole(turn))
    half = body[: len(body) // 2]
    if fault is not None and fault.kind is FaultKind.CUT:
        headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": half, "more_body": True})
        return
    await _send_whole(send, 200, body if fault is None else half)


async def _send_whole(send: Send, status: int, body: bytes) -> None:
    headers = [*_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _body(receive: Receive) -> bytes | None:
    """Read the request's body; None if the client left before it was complete."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


_Items = list[dict[str, Any]]


class Memory:
    """The stored responses of a vendor: items by id, and by response the conversation up to it."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._upto: dict[str, _Items] = {}

    def recall(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the body, preceded by the stored conversation that it continues, as the model reads it; None if that
        is unknown."""
        place = _place(body)
        if place and place not in self._upto and "previous_response_id" in body:
            return None
        said = body.get("input")
        new = [{"role": "user", "content": said}] if isinstance(said, str) else objects(said)
        items = [
            self._items.get(str(item.get("id")), item) if item.get("type") == "item_reference" else item for item in new
        ]
        left = {key: value for key, value in body.items() if key not in ("previous_response_id", "conversation")}
        if not place and items == said:
            return dict(body)
        return left | {"input": self._upto.get(place, []) + items} if items or place else left

    def keep(self, body: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store the answer to this body, unless it has `store: false`."""
        if body.get("store") is False:
            return
        recalled = self.recall(body) or {}
        output = objects(response.get("output"))
        self._items |= {str(item.get("id")): item for item in output}
        upto = objects(recalled.get("input")) + output
        self._upto[str(response.get("id"))] = upto
        if body.get("conversation"):
            self._upto[_place(body)] = upto


def _place(body: Mapping[str, Any]) -> str:
    """Return the id of the response or conversation that a request continues; empty if none."""
    conversation = body.get("conversation")
    name = conversation.get("id") if isinstance(conversation, dict) else conversation
    return str(body.get("previous_response_id") or name or "")
