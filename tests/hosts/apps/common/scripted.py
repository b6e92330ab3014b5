"""The scripted models behind each host, without a server: what is asked, and the answer in pieces.

The name of the model says what it does: `looping` calls the same tool until it is told, `stubborn` always, `waiting`
stops in its text, three times, each until somebody has asked `releasing` with the same message once more. So a client
that reads the next piece before it asks `releasing` knows that the host passes pieces as they come, however slow it is.
`left` says whether an answer of `waiting` to the same message was broken off.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio

from callfuse.testing import Answer, ScriptedVendor, VendorRequest, looping_model

TEXT = "Llamas are camelids of the Andes, kept for their wool and as beasts of burden."
WAITS_BEFORE = (2, 3, 4)
"""The pieces of `waiting` that must be released; one with text comes before."""

_looping = looping_model()
_stubborn = looping_model(stubborn=True)
_released: dict[str, int] = {}
"""How often, by the message."""
_changed: list[anyio.Event] = []
_left: set[str] = set()
"""Messages whose answers were broken off."""


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
            _released[_message(request)] = _released.get(_message(request), 0) + 1
            while _changed:
                _changed.pop().set()
            return Answer("Released.")
        case "left":
            return Answer("yes" if _message(request) in _left else "no")
        case _:
            return Answer(TEXT)


def _message(request: VendorRequest) -> str:
    return str(request.body["messages"][0]["content"])


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
    request = vendor.requests[-1]
    message = _message(request) if request.model == "waiting" else ""
    pieces = [message["body"] for message in sent[1:] if message["body"]]
    return Reply(sent[0]["status"], headers[b"content-type"].decode(), _in_time(pieces, message))


async def _in_time(pieces: list[bytes], message: str) -> AsyncIterator[bytes]:
    try:
        for at, piece in enumerate(pieces):
            while message and at in WAITS_BEFORE and _released.get(message, 0) <= WAITS_BEFORE.index(at):
                _changed.append(event := anyio.Event())
                await event.wait()
            yield piece
    except (GeneratorExit, anyio.get_cancelled_exc_class()):
        _left.add(message)
        raise
