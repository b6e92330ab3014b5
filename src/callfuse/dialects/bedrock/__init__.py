"""Bedrock's Converse: whole answers, and AWS event streams.

SDKs normally sign their requests (SigV4). A signed request is never changed or sent again, so only blocking is
possible.
"""

import re
from typing import Any, ClassVar, Final

from callfuse.dialects.bedrock.answer import (
    ConverseReader,
    is_unfinished,
    model_turn,
    model_turn_of_whole,
    read_whole,
    said,
)
from callfuse.dialects.bedrock.request import ConverseRequest
from callfuse.dialects.defaults import EventDialect
from callfuse.dialects.message_list import has_messages
from callfuse.dialects.recorded import Recorded, answer_in, blocks_of, body_in
from callfuse.dialects.tokens import CONVERSE
from callfuse.wire import AWS_EVENTS, Format, Payload
from callfuse.wire.aws_events import HEARTBEAT, MEDIA_TYPE
from callfuse.wire.jsontext import dumps

_PATH: Final = re.compile(r"\A(?:(?!/model/).)*+/model/.+/converse(?:-stream)?/?$", re.DOTALL)


class Bedrock(EventDialect):
    """The dialect `bedrock-converse`."""

    name: Final = "bedrock-converse"
    backend: Final = "bedrock"
    usual_path: Final = "/model/model/converse"
    call_mark: Final = b'"toolUse"'
    counts: ClassVar = CONVERSE
    heartbeat = HEARTBEAT
    reader: ClassVar = ConverseReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)
    is_unfinished = staticmethod(is_unfinished)

    def serves(self, path: str) -> bool:
        """Whether the path ends as Converse's paths do, for streamed or whole answers."""
        return _PATH.search(path) is not None

    def read_request(self, body: bytes, payload: Any, target: str = "") -> ConverseRequest | None:
        """Return the request, if it has messages."""
        return ConverseRequest(body, payload, target) if has_messages(payload) else None

    def stream_format(self, content_type: bytes, *, asked: bool) -> Format | None:
        """Return the format of AWS event streams if the content type names them, else None."""
        return AWS_EVENTS if content_type.startswith(MEDIA_TYPE) else None

    def is_keep_alive(self, frame: bytes, payload: Payload | None) -> bool:
        """Whether the frame is a heartbeat that callfuse wrote: Bedrock sends none."""
        return frame == HEARTBEAT

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in AWS's format."""
        return dumps({"message": message})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by tool blocks in messages, and an answer by an object `output`."""
        return body_in(value, "messages", _has_tool_blocks) or answer_in(value, "output", dict)


def _has_tool_blocks(message: Payload) -> bool:
    return any("toolUse" in block or "toolResult" in block for block in blocks_of(message))
