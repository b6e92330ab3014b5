"""The dialects under test. A dialect gets every law by being registered here.

In: neutral conversations and answers (`tests.support.model`). Out: bytes as the vendor and its clients write
them, and what a client reads from bytes: once with a reader of the tests' own (`read`, which understands every
quirk), once with the official SDK (`sdk`), whose word decides what is a valid stream.
"""

from typing import Protocol

from tests.support.kits.anthropic import AnthropicKit
from tests.support.kits.bedrock import BedrockKit
from tests.support.kits.cohere import CohereKit
from tests.support.kits.gemini import GeminiArrayKit, GeminiKit
from tests.support.kits.interactions import InteractionsKit
from tests.support.kits.ollama import OllamaKit
from tests.support.kits.openai_chat import OpenAIChatKit
from tests.support.kits.openai_responses import OpenAIResponsesKit
from tests.support.model import PLAIN, Answer, Frame, History, Style, View


class DialectKit(Protocol):
    """What a dialect must be able to do for the laws to be asked of it."""

    @property
    def name(self) -> str:
        """The dialect's name, as callfuse has it."""

    @property
    def path(self) -> str:
        """Where its requests go."""

    @property
    def most_choices(self) -> int:
        """How many choices one answer can have."""

    @property
    def may_lack_finish(self) -> bool:
        """Whether vendors are known that send calls without a finish reason."""

    @property
    def late_text(self) -> bool:
        """Whether text may follow a call."""

    @property
    def one_text(self) -> bool:
        """Whether all text of an answer is one string, so that two answers' texts are parted by a blank line."""

    @property
    def stopped(self) -> str:
        """The finish reason of a message that ends without calls."""

    @property
    def called(self) -> str:
        """The finish reason of a message that ends with calls."""

    @property
    def history_key(self) -> str:
        """Where in a request the conversation stands."""

    @property
    def newlines(self) -> tuple[str, ...]:
        """Line ends that its clients read."""

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """The request body of a conversation."""

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """An answer as a stream, one frame an event."""

    def whole(self, answer: Answer) -> bytes:
        """An answer as one JSON body."""

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """What a client that understands every quirk has at the end, choice by choice."""

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a streamed body by the rules of the dialect."""

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """What the official SDK makes of a body; raises where it refuses it."""

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The next request of an agent on the official SDK: each call gets `result`, or the user speaks."""

    def said(self, request: bytes) -> View:
        """The model's last turn in a request; arguments as the text that they stand there as, or would in JSON."""

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """The results in a request, as (call id, text), in order."""

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The answer ids that stand in a body, or what else tells two answers apart."""

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """Input and output tokens that the SDK reports at the end."""

    def error(self) -> bytes:
        """An error event, as the vendor puts it into a stream that has begun."""


KITS: tuple[DialectKit, ...] = (
    OpenAIChatKit(),
    OpenAIResponsesKit(),
    AnthropicKit(),
    OllamaKit(),
    GeminiKit(),
    GeminiArrayKit(),
    CohereKit(),
    BedrockKit(),
    InteractionsKit(),
)

STREAMS = {kit.path: (kit.stream_path, kit.query) for kit in (GeminiKit, GeminiArrayKit, BedrockKit)}
"""Where, and with which query, streams are asked for by dialects that tell them from whole answers by the path."""


def target_of(kit: DialectKit, *, stream: bool) -> tuple[str, bytes]:
    """The path and the query of a request."""
    return STREAMS[kit.path] if stream and kit.path in STREAMS else (kit.path, b"")


def stream_of(kit: DialectKit, answer: Answer) -> bytes:
    """An answer's stream in one piece."""
    return b"".join(frame.raw for frame in kit.frames(answer))
