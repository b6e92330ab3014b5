"""Bedrock's `/invoke-with-response-stream`: Anthropic's messages, whose events are carried by an AWS event stream.

Each event is a `chunk` with the JSON of the model's own format in base64. Only Anthropic's is read. Whole answers come
from `/invoke`, which `anthropic` serves.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from callfuse.dialects.anthropic import MessagesDialect, is_messages
from callfuse.dialects.anthropic.answer import EventStream, MessagesReader
from callfuse.dialects.anthropic.request import MessagesRequest
from callfuse.dialects.base import Event, What
from callfuse.dialects.recorded import Recorded
from callfuse.dialects.tokens import INVOKE
from callfuse.wire import AWS_CHUNKS, Format, Payload
from callfuse.wire.aws_events import EXCEPTION, HEARTBEAT, MEDIA_TYPE, chunk
from callfuse.wire.jsontext import dumps


class InvokeReader(MessagesReader):
    """Assembles the calls of one streamed answer, which an exception by AWS may end early."""

    __slots__ = ()

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        return (Event(What.BROKE),) if EXCEPTION in payload else super().read(payload)


def _written(payload: Payload) -> bytes:
    """Write a chunk by callfuse."""
    return chunk(dumps(payload))


class InvokeRequest(MessagesRequest):
    """A request to Anthropic's Messages API whose path asks for a stream."""

    __slots__ = ()

    _stream_type = MEDIA_TYPE
    _events = EventStream(AWS_CHUNKS, _written)

    def __init__(self, body: bytes, payload: Payload, target: str) -> None:
        super().__init__(body, payload, target)
        self.stream = True


class BedrockInvoke(MessagesDialect):
    """The dialect `bedrock-invoke`. Its payloads are Anthropic's events."""

    name: Final = "bedrock-invoke"
    backend: Final = "anthropic"
    usual_path: Final = "/model/anthropic.model/invoke-with-response-stream"
    call_mark: Final = b"type"  # a header's name, in every frame: base64 hides the content, so each frame is read
    counts: ClassVar = INVOKE
    heartbeat = HEARTBEAT
    reader: ClassVar = InvokeReader

    def serves(self, path: str) -> bool:
        """Whether the path is the one for streams. The body shows whether the model's format is Anthropic's."""
        return path.rstrip("/").endswith("/invoke-with-response-stream")

    def read_request(self, body: bytes, payload: Any, target: str = "") -> InvokeRequest | None:
        """Return the request, if the body has Anthropic's format."""
        return InvokeRequest(body, payload, target) if is_messages(payload) else None

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return the format of AWS event streams if the content type names them, else None."""
        return AWS_CHUNKS if content_type.startswith(MEDIA_TYPE) else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the frame carries a ping, or nothing."""
        return payload.get("type") == "ping" if payload else frame == HEARTBEAT

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in AWS's format."""
        return dumps({"message": message})

    def recognise(self, value: Any) -> Recorded | None:
        """Return None: the dialect `anthropic` reads recorded bodies."""
        return None
