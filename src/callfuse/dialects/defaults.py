"""Default methods for `Dialect` objects, shared by most dialects."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from callfuse.dialects.repeats import NO_REPEATS, RepeatFinish
from callfuse.dialects.tokens import NO_COUNTS, TokenCounts
from callfuse.wire import EVENTS, Format, Payload, sse
from callfuse.wire.jsontext import dumps


class EventDialect:
    """A dialect that streams server-sent events, with one choice per answer and no tools on the server that wait."""

    heartbeat: ClassVar[bytes] = b": keep-alive\n\n"
    early_mark: ClassVar[bytes] = b""
    kept_mark: ClassVar[bytes] = b""
    counts: ClassVar[TokenCounts] = NO_COUNTS
    repeats: ClassVar[RepeatFinish] = NO_REPEATS
    history_key: ClassVar[str] = "messages"

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return the format of server-sent events if the content type names them, else None."""
        return EVENTS if content_type.startswith(b"text/event-stream") else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the frame contains only comments."""
        return payload is None and sse.is_comment(frame)

    def is_end(self, frame: bytes) -> bool:
        """Return False: the frame that ends an answer has a payload."""
        return False

    def choices_of(self, payload: Payload) -> Sequence[int]:
        """Return the index of the only choice."""
        return (0,)

    def is_unfinished(self, payloads: Iterable[Payload]) -> bool:
        """Return False: no server-side tool waits for its result."""
        return False


class OpenAIDialect(EventDialect):
    """A dialect of one of OpenAI's own APIs."""

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in OpenAI's format."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return dumps({"error": {"message": message, "type": kind, "param": None, "code": None}})


def is_polled(payload: Payload) -> bool:
    """Whether the answer is generated in the background; the client fetches it later by its id."""
    return payload.get("background") is True and payload.get("stream") is not True
