"""The counts of vendors: what each field adds, what is missing, and what is no count."""

from typing import Any

import pytest

from callfuse.dialects.tokens import (
    CHAT,
    COHERE,
    CONVERSE,
    GEMINI,
    INTERACTIONS,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    TokenCounts,
)
from callfuse.model.spent import Tokens

CACHED = {"cached_tokens": 2}
CASES: list[tuple[TokenCounts, list[dict[str, Any]], Tokens | None]] = [
    (CHAT, [{"usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}], Tokens(9, 0, 4)),
    (
        CHAT,
        [{"usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}}],
        Tokens(9, 8, 4),
    ),
    (CHAT, [{"usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 3}}], Tokens(9, 3, 4)),
    (CHAT, [{"x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}}], Tokens(9, 0, 4)),
    (CHAT, [{"usage": {"prompt_tokens": 1}}, {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}], Tokens(9, 0, 4)),
    (CHAT, [{"usage": None}], None),
    (CHAT, [{"choices": []}], None),
    (CHAT, [{"usage": {"prompt_tokens": "9", "completion_tokens": True}}], None),
    (CHAT, [{"usage": {"prompt_tokens": -9, "completion_tokens": 10**30}}], None),
    (CHAT, [{"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99}}}], Tokens(9, 9, 0)),
    (
        RESPONSES,
        [{"response": {"usage": {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": CACHED}}}],
        Tokens(9, 2, 4),
    ),
    (
        MESSAGES,
        [
            {"message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 40}}},
            {"message": {"usage": {"cache_creation_input_tokens": 5}}},
            {"usage": {"output_tokens": 7, "input_tokens": None}},
        ],
        Tokens(48, 40, 7),
    ),
    (
        GEMINI,
        [
            {
                "usageMetadata": {
                    "promptTokenCount": 9, "toolUsePromptTokenCount": 1, "candidatesTokenCount": 4,
                    "thoughtsTokenCount": 6, "cachedContentTokenCount": 5,
                }
            }
        ],
        Tokens(10, 5, 10),
    ),
    (
        INTERACTIONS,
        [{"interaction": {"usage": {"total_input_tokens": 9, "total_output_tokens": 4, "total_thought_tokens": 2}}}],
        Tokens(9, 0, 6),
    ),
    (OLLAMA, [{"done": True, "prompt_eval_count": 9, "eval_count": 4}], Tokens(9, 0, 4)),
    (OLLAMA, [{"done": True, "eval_count": 4}], Tokens(0, 0, 4)),
    (COHERE, [{"delta": {"usage": {"tokens": {"input_tokens": 9, "output_tokens": 4}} | CACHED}}], Tokens(9, 2, 4)),
    (COHERE, [{"usage": {"billed_units": {"input_tokens": 9, "output_tokens": 4}}}], Tokens(9, 0, 4)),
    (
        CONVERSE,
        [{"metadata": {"usage": {"inputTokens": 9, "outputTokens": 4, "cacheReadInputTokens": 90}}}],
        Tokens(99, 90, 4),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "payloads", "used"), CASES)
def test_what_is_read(counts: TokenCounts, payloads: list[dict[str, Any]], used: Tokens | None) -> None:
    """By the payloads that have counts, in their order."""
    assert counts.read(payloads) == used


@pytest.mark.parametrize(
    ("frame", "may"),
    [
        (b'data: {"usage":{"prompt_tokens":1}}', True),
        (b'data: {"usage" : \n{"prompt_tokens":1}}', True),
        (b'data: {"choices":[],"usage":null}', False),
        (b'data: {"delta":{"content":"the usage: {"}}', False),
        (b'data: {"delta":{"content":"\\"usage\\":{"}}', False),
    ],
)
def test_frames_without_counts_need_not_be_parsed(frame: bytes, may: bool) -> None:
    """Text about usage is none; nor is a null."""
    assert CHAT.may_be_in(frame) == may
