"""Bedrock's Converse, as far as its recordings need it: requests, and AWS binary event streams around recorded events.

There is no kit of it in `tests.support.kits`, for it has no stream that callfuse reads. An event stream is a row of
messages: total and header length, a CRC of both, headers (name, type 7, value), payload, and a CRC of all of it.
https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
"""

import json
import struct
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from tests.support.model import History, Round

EVENT_STREAM = b"application/vnd.amazon.eventstream"
STREAM_PATH = "/model/anthropic.claude-test/converse-stream"


class BedrockKit:
    """Whole answers of `bedrock-converse`."""

    name = "bedrock-converse"
    path = "/model/anthropic.claude-test/converse"

    def request(self, history: History, *, stream: bool) -> bytes:
        """The request of a conversation; whether it streams, the path says."""
        messages: list[dict[str, Any]] = []
        for turn in history.turns:
            messages += _round(turn) if isinstance(turn, Round) else [_message("user", {"text": turn.text})]
        tools = [{"toolSpec": {"name": name, "inputSchema": {"json": {}}}} for name in history.tools]
        return json.dumps({"messages": messages, "toolConfig": {"tools": tools}}).encode()


def _message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def _round(turn: Round) -> list[dict[str, Any]]:
    calls = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}}
        for call in turn.calls
    ]
    results = [
        {"toolResult": {"toolUseId": call.id, "content": [{"text": result}]}}
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [_message("assistant", *calls), _message("user", *results)]


def event_stream(events: Iterable[dict[str, Any]]) -> bytes:
    """Events, each an object with its type as the only key, as AWS sends them."""
    return b"".join(_event(kind, json.dumps(payload).encode()) for event in events for kind, payload in event.items())


def _event(kind: str, payload: bytes) -> bytes:
    pairs = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in pairs.items()
    )
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + struct.pack("!I", crc32(lengths)) + headers + payload
    return message + struct.pack("!I", crc32(message))
