"""Vendor formats, one package each, and the registry that finds the dialect of a request.

A path is only a hint: a body that does not belong to the path's dialect passes unread.
"""

import re
from typing import Any, Final

from callfuse.dialects.anthropic import Anthropic
from callfuse.dialects.base import Dialect
from callfuse.dialects.bedrock import Bedrock
from callfuse.dialects.bedrock_invoke import BedrockInvoke
from callfuse.dialects.cohere import Cohere
from callfuse.dialects.gemini import Gemini
from callfuse.dialects.interactions import Interactions
from callfuse.dialects.ollama import Ollama
from callfuse.dialects.openai_chat import OpenAIChat
from callfuse.dialects.openai_responses import OpenAIResponses
from callfuse.wire import Payload

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    Interactions(),
    OpenAIResponses(),
    Anthropic(),
    Ollama(),
    Gemini(),
    Cohere(),
    BedrockInvoke(),
    Bedrock(),
)
"""All dialects. A new one is a folder in `dialects/`, and a line here."""

UNREAD: Final = {
    "openai-assistants": re.compile(r"/threads(?:/[^/]+)?/runs(?:/[^/]+/submit_tool_outputs)?/?$"),
    "vertex-raw-predict": re.compile(r"/publishers/[^/]+/models/(?!count-tokens)[^/]+:(?:r|streamR)awPredict/?$"),
}
"""APIs with tool calls that no dialect reads, by name, with their paths. They are counted as unguarded if no dialect
serves the path: Vertex passes each publisher's own format."""

__all__ = ["DIALECTS", "Dialect", "dialect_of", "error_body", "recognise_answer", "recognise_request", "unread_api"]


def dialect_of(path: str) -> Dialect | None:
    """Return the dialect that serves a POST to this path and can read its body; None if there is none."""
    for dialect in DIALECTS:
        if dialect.serves(path):
            return dialect
    return None


def recognise_request(value: Any) -> tuple[Dialect, Payload] | None:
    """Return the dialect and body of a recorded request (a body or a bare history); None if no dialect reads it."""
    return _recognise(value, is_answer=False)


def recognise_answer(value: Any) -> tuple[Dialect, Payload] | None:
    """Return the dialect of a recorded whole answer, and the answer; None if no dialect reads it."""
    return _recognise(value, is_answer=True)


def _recognise(value: Any, *, is_answer: bool) -> tuple[Dialect, Payload] | None:
    for dialect in (*DIALECTS[1:], DIALECTS[0]):  # OpenAI chat comes last: it is recognised by no key of its own
        found = dialect.recognise(value)
        if found is not None and found.is_answer is is_answer:
            return dialect, found.payload
    return None


def unread_api(path: str) -> str:
    """Return the name of the API in `UNREAD` that a path belongs to; empty if there is none."""
    return next((name for name, paths in UNREAD.items() if paths.search(path)), "")


def error_body(path: str, status: int, message: str) -> tuple[bytes, str]:
    """Return an error body in the format of the path's dialect (default: OpenAI's), with its content type."""
    dialect = dialect_of(path) or DIALECTS[0]
    return dialect.error_body(status, message), "application/json"
