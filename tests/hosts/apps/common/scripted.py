"""The scripted models behind each host, without a server: what is asked, and the answer in pieces.

The name of the model says what it does: `looping` calls the same tool until it is told, `stubborn` always, `waiting`
stops in the middle of its text until somebody asks `releasing`. So a client that has read the beginning before it asks
`releasing` knows that the host passes pieces as they come, whatever the machine's speed.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio

from callfuse.testing import Answer, ScriptedVendor, VendorRequest, looping_model

TEXT = "Llamas are camelids of the Andes, kept for their wool and as beasts of burden."
PIECES_FIRST = 4
"""Pieces of `waiting` that come at once."""

_looping = looping_model()
_stubborn = looping_model(stubborn=True)
_released: list[anyio.Event] = []


@dataclass(frozen=True)
class Reply:
    """An answer: its status, its content type, and its pieces as they come."""

    status: int
    media_type: str
    pieces: AsyncIterator[bytes]


def _script(request: VendorRequest) -> Answer:
    match request.model:
        case "looping":
            return _looping(request)
        case "stubborn":
            return _stubborn(request)
        case "releasing":
            for event in _released:
                event.set()
            return Answer("Released.")
        case _:
            return Answer(TEXT)


vendor = ScriptedVendor(_script)


async def answer(path: str, body: bytes) -> Reply:
    """The vendor's answer to a POST of this body."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    await vendor(scope, receive, send)
    headers = dict(sent[0]["headers"])
    waits = vendor.requests[-1].model == "waiting"
    pieces = [message["body"] for message in sent[1:] if message["body"]]
    return Reply(sent[0]["status"], headers[b"content-type"].decode(), _in_time(pieces, waits=waits))


async def _in_time(pieces: list[bytes], *, waits: bool) -> AsyncIterator[bytes]:
    for at, piece in enumerate(pieces):
        if waits and at == PIECES_FIRST:
            _released.append(anyio.Event())
            await _released[-1].wait()
        yield piece
