"""The vendors' rules for requests, and a scripted vendor that refuses what breaks them, as the real ones do.

The sentences are our own; real vendors answer HTTP 400 at the first broken rule.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from callfuse.testing import ScriptedVendor
from callfuse.testing.script import Script
from tests.support.rules import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    interactions,
    ollama,
    openai_chat,
    openai_responses,
)

RULES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "anthropic": anthropic.broken_rules,
    "bedrock-converse": bedrock.broken_rules,
    "bedrock-invoke": anthropic.broken_rules,
    "cohere-v2": cohere.broken_rules,
    "gemini": gemini.broken_rules,
    "gemini-interactions": interactions.broken_rules,
    "ollama": ollama.broken_rules,
    "openai-chat": openai_chat.broken_rules,
    "openai-responses": openai_responses.broken_rules,
}
"""The rules of each dialect. They never raise, whatever the body holds."""


def violations(dialect: str, body: Mapping[str, Any]) -> list[str]:
    """The rules that a parsed request breaks, in the order of the body; each sentence begins with the place."""
    return list(RULES[dialect](body))


class StrictVendor(ScriptedVendor):
    """A scripted vendor that answers 400 where a request breaks a rule."""

    def __init__(self, script: Script, *, chunk_delay_s: float = 0.0, piece_chars: int = 12) -> None:
        super().__init__(script, chunk_delay_s=chunk_delay_s, piece_chars=piece_chars, rules=violations)
