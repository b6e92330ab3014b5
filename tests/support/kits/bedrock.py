"""Bedrock's Converse: requests, AWS event streams, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by boto3; the faults of a stream. An event stream is a row of messages:
total and header length, a CRC of both, headers (name, type 7, value), payload, and a CRC of all of it.
https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
"""

import json
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from zlib import crc32

import boto3  # type: ignore[import-untyped]  # it has no types
from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]  # see above
from botocore.config import Config  # type: ignore[import-untyped]  # see above
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]  # see above

from tests.support.model import (
    PLAIN,
    Answer,
    Call,
    Choice,
    Frame,
    History,
    Item,
    Quirks,
    Round,
    SeenCall,
    Style,
    Text,
    Thinking,
    View,
    canonical,
)
from tests.support.render import client_json, dumps, place_noise

MODEL = "anthropic.claude-test"
EVENT_STREAM = b"application/vnd.amazon.eventstream"
USAGE = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
METRICS = {"latencyMs": 42}
ALIVE = "callfuse-keep-alive"
Event = dict[str, Any]
"""An event as boto3 has it: its type is the only key."""


class BedrockKit:
    """The `bedrock-converse` dialect."""

    name = "bedrock-converse"
    path = f"/model/{MODEL}/converse"
    stream_path = f"/model/{MODEL}/converse-stream"
    query = b""
    most_choices = 1
    late_text = False
    one_text = False
    stopped = "end_turn"
    called = "tool_use"
    may_lack_finish = False
    history_key = "messages"
    newlines = ("\n",)

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys; the path says whether it streams."""
        body = {
            "additionalModelRequestFields": {"seed": 9007199254740993123},
            "inferenceConfig": {"temperature": 1.0, "maxTokens": 1024, "stopSequences": ["é\u2028"]},
            "system": [{"text": "You are a careful agent é\u2603."}],
            "messages": messages(history, style),
            "toolConfig": tools_of(history),
        }
        return client_json(body, style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """Start, blocks, stop, metadata."""
        quirks, items = answer.quirks, answer.choices[0]
        frames = [Frame(event({"messageStart": {"role": "assistant"}}, quirks), "start")]
        for at, item in enumerate(items):
            frames += _block_frames(item, at, quirks)
        frames.append(Frame(event({"messageStop": {"stopReason": _finish(items)}}, quirks), "finish", 0))
        told = {"usage": USAGE} if answer.usage else {}
        frames.append(Frame(event({"metadata": {**told, "metrics": METRICS}}, quirks), "done"))
        return place_noise(frames, Frame(event({ALIVE: {}}), "noise"), quirks)

    def whole(self, answer: Answer) -> bytes:
        """The one object."""
        items = answer.choices[0]
        said = {"role": "assistant", "content": [_block(item) for item in items]}
        body = {"metrics": METRICS, "output": {"message": said}, "stopReason": _finish(items), "usage": USAGE}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        if stream:
            return (read_message(*merged(events(body))),)
        answer = json.loads(body)
        return (read_message(answer["output"]["message"], answer["stopReason"]),)

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return list(check(body))

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """What boto3 gives its caller, put together."""
        message, finish, _ = _ask(body, stream=stream)
        return (read_message(message, finish),)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The message goes back as boto3 gave it, as agents do."""
        message, _, _ = _ask(body, stream=stream)
        used = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        answers: list[Any] = [
            {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": result}]}} for use in used
        ]
        back = {"role": "user", "content": answers or [{"text": "Go on."}]}
        client, vendor = _client()
        vendor.body = self.whole(Answer(((Text(("ok",)),),)))
        turns = [*messages(history, PLAIN), message, back]
        client.converse(modelId=MODEL, messages=turns, toolConfig=tools_of(history))
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last assistant message; reasoning must have its signature."""
        turn = next(turn for turn in reversed(json.loads(request)["messages"]) if turn["role"] == "assistant")
        thoughts = [block["reasoningContent"]["reasoningText"] for block in turn["content"] if _reasons(block)]
        assert all(thought["signature"] for thought in thoughts)
        view = read_message(turn, None)
        used = [block["toolUse"] for block in turn["content"] if "toolUse" in block]
        calls = tuple(SeenCall(use["toolUseId"], use["name"], json.dumps(use["input"])) for use in used)
        return View(view.text, view.thinking, calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every tool result."""
        return [
            (block["toolResult"]["toolUseId"], "".join(part["text"] for part in block["toolResult"]["content"]))
            for turn in json.loads(request)["messages"]
            for block in turn["content"]
            if "toolResult" in block
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The messages that start: there are no ids."""
        kinds = [kind for one in events(body) for kind in one] if stream else ["messageStart"]
        return {f"message {at or 'first'}" for at in range(kinds.count("messageStart"))}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The counts at the end."""
        usage = _ask(body, stream=stream)[2]
        return (usage["inputTokens"], usage["outputTokens"]) if usage else None

    def error(self) -> bytes:
        """An exception among the events."""
        return message({":exception-type": "throttlingException", ":message-type": "exception"}, b'{"message":"slow"}')


def messages(history: History, style: Style) -> list[Any]:
    """The conversation as messages. Roles alternate: results and what is said beside them are one message, and between
    two messages of the user stands an answer."""
    found: list[Any] = []
    for turn in history.turns:
        if isinstance(turn, Round):
            found += _round(turn, style)
            continue
        said = {"text": turn.text}
        if found and found[-1]["role"] == "user" and "toolResult" in found[-1]["content"][0]:
            found[-1]["content"].append(said)
            continue
        if found and found[-1]["role"] == "user":
            found.append({"role": "assistant", "content": [{"text": "Yes?"}]})
        found.append({"role": "user", "content": [said]})
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    said = [{"text": turn.text}] if turn.text else []
    calls = [_block(call) for call in turn.calls]
    more = {"status": "success"} if style.parts else {}
    results = [
        {"toolResult": {"toolUseId": call.id, "content": [{"text": result}], **more}}
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    back = [{"role": "user", "content": results}] if results else []
    return [{"role": "assistant", "content": [*said, *calls]}, *back]


def tools_of(history: History) -> dict[str, Any]:
    """The tools of a conversation."""
    schema = {"json": {"type": "object", "properties": {}}}
    specs = [{"name": name, "description": f"Runs {name}.", "inputSchema": schema} for name in history.tools]
    return {"tools": [{"toolSpec": spec} for spec in specs]}


def _finish(items: Choice) -> str:
    return "tool_use" if any(isinstance(item, Call) for item in items) else "end_turn"


def _block(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"text": item.text}
        case Thinking():
            return {"reasoningContent": {"reasoningText": {"text": item.text, "signature": item.signature}}}
        case Call():
            value = json.loads(item.arguments or "{}")
            return {"toolUse": {"toolUseId": item.id, "name": item.name, "input": value}}


def _reasons(block: dict[str, Any]) -> bool:
    return "reasoningContent" in block


def message(headers: dict[str, str], payload: bytes) -> bytes:
    """A message of an event stream."""
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    begun = lengths + struct.pack("!I", crc32(lengths)) + packed + payload
    return begun + struct.pack("!I", crc32(begun))


def event(said: Event, quirks: Quirks | None = None) -> bytes:
    """An event, padded as Bedrock does it where the quirks ask for more keys."""
    ((kind, payload),) = said.items()
    quirks = quirks or Quirks()
    padding = {"p": "abcdefghijk"} if quirks.extras else {}
    text = dumps({**payload, **padding}, spaced=quirks.spaced).encode()
    return message({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, text)


def event_stream(listed: Iterable[Event]) -> bytes:
    """Events in one piece."""
    return b"".join(map(event, listed))


def _deltas(item: Item, quirks: Quirks) -> Iterator[dict[str, Any]]:
    match item:
        case Text(pieces):
            yield from ({"text": piece} for piece in pieces)
        case Thinking(pieces, signature):
            yield from ({"reasoningContent": {"text": piece}} for piece in pieces)
            yield {"reasoningContent": {"signature": signature}}
        case Call():
            pieces = (item.arguments,) if quirks.whole_calls else item.pieces
            yield from ({"toolUse": {"input": piece}} for piece in pieces)


def _block_frames(item: Item, at: int, quirks: Quirks) -> Iterator[Frame]:
    place = {"contentBlockIndex": at}
    if isinstance(item, Call):
        start = {"toolUse": {"toolUseId": item.id, "name": item.name}}
        yield Frame(event({"contentBlockStart": {**place, "start": start}}, quirks), "open", 0, at)
    for delta in _deltas(item, quirks):
        yield Frame(event({"contentBlockDelta": {**place, "delta": delta}}, quirks), "piece", 0, at)
    yield Frame(event({"contentBlockStop": place}, quirks), "close", 0, at)


class _Vendor:
    """Stands where boto3's connection would be: gives it a body and keeps what it sent."""

    def __init__(self) -> None:
        self.body, self.asked = b"", b""

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        """Answer a request that is about to be sent."""
        self.asked = request.body
        return AWSResponse(request.url, 200, {"content-type": "application/json"}, self)

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """The body as a connection gives it."""
        yield self.body

    def close(self) -> None:
        """Nothing is open."""


@cache
def _client() -> tuple[Any, _Vendor]:
    vendor = _Vendor()
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url="http://vendor.test",
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=True),
    )
    client.meta.events.register("before-send.bedrock-runtime", vendor)
    return client, vendor


def _ask(body: bytes, *, stream: bool) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
    """Message, stop reason and usage, as boto3 has them."""
    client, vendor = _client()
    vendor.body = body
    question: Any = {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": "x"}]}]}
    if not stream:
        answer = client.converse(**question)
        return answer["output"]["message"], answer["stopReason"], answer.get("usage") or {}
    seen = list(client.converse_stream(**question)["stream"])
    usage = [one["metadata"].get("usage") or {} for one in seen if "metadata" in one]
    return *merged(seen), usage[-1] if usage else {}


def events(body: bytes) -> list[Event]:
    """The events of a stream, by botocore's framing, which checks each CRC; without keep-alives."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    found = [(one.headers, one.payload) for one in buffer]
    return [{told[":event-type"]: json.loads(payload)} for told, payload in found if told.get(":event-type") != ALIVE]


def merged(listed: Iterable[Event]) -> tuple[dict[str, Any], str | None]:
    """The message of many events, and its stop reason."""
    blocks: dict[int, dict[str, Any]] = {}
    finish = None
    for one in listed:
        ((kind, said),) = one.items()
        if kind == "contentBlockStart":
            use = said["start"]["toolUse"]
            blocks[said["contentBlockIndex"]] = {"toolUse": {**use, "input": ""}}
        elif kind == "contentBlockDelta":
            _extend(blocks.setdefault(said["contentBlockIndex"], {}), said["delta"])
        elif kind == "messageStop":
            finish = said["stopReason"]
    content = [blocks[at] for at in sorted(blocks)]
    for block in content:
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    return {"role": "assistant", "content": content}, finish


def _extend(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    else:
        thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
        ((key, said),) = delta["reasoningContent"].items()
        thought[key] = thought.get(key, "") + said


def read_message(said: dict[str, Any], finish: str | None) -> View:
    """What a client has of a message."""
    text = "".join(block["text"] for block in said["content"] if "text" in block)
    thoughts = [block["reasoningContent"]["reasoningText"]["text"] for block in said["content"] if _reasons(block)]
    used = [block["toolUse"] for block in said["content"] if "toolUse" in block]
    calls = tuple(SeenCall(use["toolUseId"], use["name"], canonical(json.dumps(use["input"]))) for use in used)
    return View(text, "".join(thoughts), calls, finish)


def check(body: bytes) -> Iterator[str]:
    """What is wrong with a stream."""
    listed = events(body)
    kinds = [kind for one in listed for kind in one]
    if b"".join(event(one) for one in listed) == b"" or kinds[0] != "messageStart" or kinds.count("messageStart") != 1:
        yield "not one messageStart at the front"
    if kinds[-2:] != ["messageStop", "metadata"] or kinds.count("messageStop") != 1 or kinds.count("metadata") != 1:
        yield f"ends in {kinds[-2:]}"
        return
    begun: dict[int, str] = {}
    stopped: set[int] = set()
    for one in listed:
        ((kind, said),) = one.items()
        if not kind.startswith("contentBlock"):
            continue
        at = said["contentBlockIndex"]
        part = next(iter(said.get("start") or said.get("delta") or {}), begun.get(at, ""))
        if at not in begun:
            if at != len(begun) or len(stopped) != len(begun):
                yield f"block {at} begins out of turn (the next is {len(begun)})"
            if "toolUse" in begun.values() and part != "toolUse":
                yield f"{part} after toolUse"
            if (part == "toolUse") is not (kind == "contentBlockStart"):
                yield f"a block of {part} begins with {kind}"
            begun[at] = part
        if begun[at] != part or at in stopped:
            yield f"{part} in a block of {begun[at]}, or behind its end"
        if kind == "contentBlockStop":
            stopped.add(at)
    if stopped != set(begun):
        yield "a block has no end"
    if list(begun.values()).count("reasoningContent") and begun[0] != "reasoningContent":
        yield "reasoning does not come first"
    (reason,) = [one["messageStop"]["stopReason"] for one in listed if "messageStop" in one]
    if reason != ("tool_use" if "toolUse" in begun.values() else "end_turn"):
        yield f"stop reason {reason}"
