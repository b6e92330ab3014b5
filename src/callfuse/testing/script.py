"""Define scripts for the scripted vendor: requests, answers and faults as plain data, the same for every dialect.

A script is a function from a `VendorRequest` to an `Answer`, a `Fault` or `Choices`, sync or async; or a sequence of
answers, given in order.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from callfuse.dialects.addresses import model_in
from callfuse.model import MARKER

STREAMING_METHOD = ":streamGenerateContent"
"""The end of Gemini's paths for streams."""
BEDROCK_STREAMS = ("/converse-stream", "/invoke-with-response-stream")
"""The ends of Bedrock's paths for streams."""
STREAM_UNASKED = frozenset({"ollama"})
"""Dialects that stream by default."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments`: an object, or raw text that is sent unchanged. `id`: None (the default) generates
    one."""

    name: str
    arguments: Mapping[str, Any] | str = "{}"
    id: str | None = None

    @property
    def text(self) -> str:
        """The arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else orjson.dumps(self.arguments).decode()

    def same_as(self, other: "Call") -> bool:
        """Whether both calls have the same tool and equal arguments, compared as JSON values."""
        return self.name == other.name and _meaning(self.text) == _meaning(other.text)


def _meaning(text: str) -> Any:
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return text


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one answer, or of several."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One assistant message: thinking, then text, then calls, in the vendor's own shape.

    `finish` is the vendor's finish reason (`length`, `max_tokens`, `refusal`, ...); by default the usual one for an
    answer with or without calls. Without `usage`, four bytes count as one token.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    thinking: str = ""
    finish: str | None = None
    usage: Usage | None = None


class FaultKind(Enum):
    """Ways in which a vendor fails."""

    STATUS = "status"
    CUT = "cut"
    ERROR_EVENT = "error event"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure in place of an answer, or in the middle of one. Use the four constructors."""

    kind: FaultKind
    answer: Answer = Answer()
    after_frames: int = 0
    status: int = 500
    message: str = "the scripted vendor failed as scripted"

    @classmethod
    def http(cls, status: int, message: str = "the scripted vendor failed as scripted") -> "Fault":
        """Return a fault that is an HTTP error in the vendor's envelope, in place of an answer."""
        return cls(FaultKind.STATUS, status=status, message=message)

    @classmethod
    def cut(cls, answer: Answer, *, after_frames: int) -> "Fault":
        """Return a fault that ends the connection after `after_frames` frames. Of an unstreamed answer, half is
        sent."""
        return cls(FaultKind.CUT, answer, after_frames)

    @classmethod
    def error_event(cls, answer: Answer, *, after_frames: int, message: str = "Overloaded") -> "Fault":
        """Return a fault that ends a 200 stream with an error inside it. An unstreamed answer becomes an HTTP 500."""
        return cls(FaultKind.ERROR_EVENT, answer, after_frames, message=message)

    @classmethod
    def malformed(cls, answer: Answer, *, after_frames: int) -> "Fault":
        """Return a fault that puts a frame of broken JSON into `answer`. Of an unstreamed answer, half is sent."""
        return cls(FaultKind.MALFORMED, answer, after_frames)


@dataclass(frozen=True, slots=True)
class VendorRequest:
    """A request that the vendor got."""

    number: int
    """The number of this vendor's request, from 1."""
    dialect: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case; credentials are replaced by `[redacted]`."""
    body: dict[str, Any]
    raw: bytes
    """The original bytes of the body."""
    calls: tuple[Call, ...] = ()
    """The calls whose results end the conversation; empty if it ends otherwise."""
    results: tuple[str, ...] = ()
    """The texts of those results."""
    violations: tuple[str, ...] = ()
    """The rules of the vendor that the request breaks; empty for a vendor without `rules`."""

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        if self.path.endswith((STREAMING_METHOD, *BEDROCK_STREAMS)):
            return True
        return self.body.get("stream", self.dialect in STREAM_UNASKED) is True

    @property
    def model(self) -> str:
        """The model's name from the body or the path; `scripted-model` if neither has one."""
        return str(self.body.get("model") or model_in(self.path) or "scripted-model")

    @property
    def guidance(self) -> str:
        """callfuse's text in the last results, beginning with its mark; empty if there is none."""
        for result in self.results:
            _, mark, text = result.partition(MARKER)
            if mark:
                return mark + text
        return ""


Choices = tuple[Answer, ...]
"""One answer for each of the `n` choices that an OpenAI request may ask for."""

Reply = Answer | Fault | Choices
Script = Callable[[VendorRequest], Reply | Awaitable[Reply]] | Sequence[Reply]


def looping_model(
    tool: str = "search_web",
    arguments: Mapping[str, Any] | None = None,
    *,
    text: str = "",
    thinking: str = "",
    after_guidance: Answer | None = None,
    conclusion: str = "I could not find it, so here is what I know without it.",
    stubborn: bool = False,
) -> Callable[[VendorRequest], Answer]:
    """Return a script for a model in a loop, which makes the same call again and again, whatever the result.

    If the last results contain callfuse's text, the script returns `after_guidance` (default: the same tool with other
    arguments). After the result of any other call, it ends with `conclusion`. A `stubborn` model never changes. The
    script depends only on the request, so one vendor can serve many agents at once.
    """
    looping = Call(tool, arguments if arguments is not None else {"query": "current status"})
    again = Answer(text=text, calls=(looping,), thinking=thinking)
    changed = after_guidance or Answer(calls=(Call(tool, {"query": "something else"}),), thinking=thinking)

    def script(request: VendorRequest) -> Answer:
        if stubborn:
            return again
        if request.guidance:
            return changed
        if any(not call.same_as(looping) for call in request.calls):
            return Answer(text=conclusion, thinking=thinking)
        return again

    return script
