"""Define the interface between the scripted vendor and its dialects, and signatures of thinking.

A real vendor signs each thinking block, and refuses a block whose text, order or neighbours differ from its own answer.
A scripted signature contains the answer's id, the block's index among the answer's thinking blocks and a digest of its
text, so that pure functions can check a history without the answers.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import orjson

from callfuse.testing.script import Answer, Call, Choices, Usage, VendorRequest

BYTES_PER_TOKEN = 4
EVENT_STREAM = b"text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request with its answers. Ids are numbered from 1 for each vendor, so they are the same in every run.

    `piece_chars`: characters of text per frame of a stream.
    """

    request: VendorRequest
    choices: Choices
    piece_chars: int = 12

    @property
    def created_s(self) -> int:
        """A time in seconds that depends only on the request's number."""
        return 1_700_000_000 + self.request.number

    @property
    def usage(self) -> Usage:
        """The tokens of all choices: from the script, else estimated from the bytes."""
        if given := [answer.usage for answer in self.choices if answer.usage is not None]:
            return sum(given, Usage())
        return Usage(len(self.request.raw) // BYTES_PER_TOKEN, sum(map(_output_tokens, self.choices)))

    def call_id(self, prefix: str, choice: int, place: int, call: Call) -> str:
        """Return the id of the call at index `place` of a choice: the script's, or a generated one."""
        return call.id if call.id is not None else f"{prefix}scripted_{self.request.number}_{choice}_{place}"

    def pieces(self, text: str) -> Iterator[str]:
        """Yield the text in pieces of `piece_chars`; nothing for an empty text."""
        return (text[at : at + self.piece_chars] for at in range(0, len(text), self.piece_chars))


def _output_tokens(answer: Answer) -> int:
    written = answer.text + answer.thinking + "".join(call.name + call.text for call in answer.calls)
    return len(written.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN + 1


class VendorDialect(Protocol):
    """One wire format of the scripted vendor."""

    name: str
    """The dialect's name."""
    stream_type: bytes
    """The content type of its streams."""

    def serves(self, path: str) -> bool:
        """Whether requests to `path` use this dialect."""

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls whose results end the conversation, and the texts of the results. Never raises."""

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return the number of answers that the request asks for."""

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield the answer as a stream, frame by frame."""

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as one body."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return the vendor's error envelope."""

    def error_frame(self, message: str) -> bytes:
        """Return an error frame for the middle of a stream."""

    def malformed_frame(self) -> bytes:
        """Return a frame whose JSON is broken."""


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a JSON array; empty if the value is not an array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(content: Any) -> str:
    """Return the text of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in objects(content) if isinstance(part.get("text"), str))


def last_tool_round(
    body: Mapping[str, Any], calls_of: Callable[[Mapping[str, Any]], Iterable[Call]]
) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    """Implement `VendorDialect.last_round` for results in `tool` messages. `calls_of` reads the calls of a message."""
    messages = objects(body.get("messages"))
    end = len(messages)
    while end and messages[end - 1].get("role") == "tool":
        end -= 1
    results = tuple(texts(message.get("content")) for message in messages[end:])
    if not results or not end:
        return (), results
    return tuple(calls_of(messages[end - 1])), results


def openai_error(status: int, message: str) -> dict[str, Any]:
    """Return OpenAI's error envelope."""
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def dumps(value: Any) -> bytes:
    """Write compact JSON, as vendors do."""
    return orjson.dumps(value)


SIGNATURE_MARK = "callfuse-scripted"


def signature_for(answer_id: str, thinking: str, place: int = 0) -> str:
    """Return the signature of an answer's thinking block; `place`: its index among the answer's thinking blocks."""
    digest = sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return urlsafe_b64encode(f"{SIGNATURE_MARK}|{place}|{digest}|{answer_id}".encode()).decode()
