"""Record the answers of an exchange for the admin page (`observe/exchanges.py`), if enabled.

The vendor's answers are recorded at the app's `send`, the client's at the host's. Messages pass unchanged.
"""

from collections.abc import Awaitable

from callfuse.asgi.answer import BODY, START, describe
from callfuse.asgi.fail_open import Stage
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.dialects.typed import OwnAnswer
from callfuse.observe.exchanges import KeptAnswer, KeptExchange, KeptSide


def record(recording: KeptExchange, app: ASGIApp, send: Send, stage: Stage) -> tuple[ASGIApp, Send]:
    """Wrap an app, so that each call is recorded as an answer of the vendor, and `send`, which records the client's. An
    error in `stage` ends the recording."""

    async def recorded(scope: Scope, receive: Receive, app_send: Send) -> None:
        with stage:
            app_send = _recording_send(recording.vendor, app_send, stage)
        await app(scope, receive, app_send)

    return recorded, _recording_send(recording.client, send, stage)


def record_reply(recording: KeptExchange, reply: OwnAnswer) -> None:
    """Record callfuse's own answer, without a vendor."""
    content_type, content = reply
    answer = recording.client.begin()
    answer.status, answer.media_type, answer.ended = 200, content_type.decode(), True
    answer.add(content)


def _recording_send(side: KeptSide, send: Send, stage: Stage) -> Send:
    answer = side.begin()

    def sending(message: Message) -> Awaitable[None]:
        if not stage.failed:
            with stage:
                _take(answer, message)
        return send(message)

    return sending


def _take(answer: KeptAnswer, message: Message) -> None:
    if message["type"] == BODY:
        if chunk := message.get("body"):
            answer.add(chunk if type(chunk) is bytes else bytes(chunk))  # an app may reuse its buffer
        answer.ended = not message.get("more_body")
    elif message["type"] == START:
        content_type, answer.coding = describe(message)
        answer.status, answer.media_type = message["status"], content_type.decode("latin-1")
