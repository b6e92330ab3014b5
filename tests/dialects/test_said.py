"""What the model says in an answer, streamed and whole: text and reasoning, each part by itself."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects import DIALECTS
from callfuse.dialects.base import Dialect
from callfuse.dialects.codec import codec_of
from callfuse.dialects.said import REASONING, TEXT, SaidPiece
from callfuse.wire import WHOLE
from tests.support.kits import DialectKit, stream_of
from tests.support.kits.gemini import GeminiArrayKit
from tests.support.meeting import every_dialect
from tests.support.model import Answer, Text, Thinking
from tests.support.plain import new_call

THOUGHTS = Thinking(("The zebra ", "again? Then ", "the giraffe."))
WORDS = Text(("Let ", "me ", "look."))
ANSWER = Answer(((THOUGHTS, WORDS, new_call()),))
BY_NAME = {one.name: one for one in DIALECTS}
KEYS = [
    "type",
    "index",
    "choices",
    "delta",
    "message",
    "content",
    "text",
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "output",
    "summary",
    "item_id",
    "output_index",
    "candidates",
    "parts",
    "thought",
    "tool_plan",
    "event_type",
    "steps",
    "contentBlockDelta",
    "reasoningContent",
]
VALUES = ["text", "thinking", "content_block_delta", "step.delta", "output_text", "response.output_text.delta"]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(VALUES)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


def joined(said: Iterable[SaidPiece]) -> dict[tuple[str, object], str]:
    """Each text by its part and place."""
    texts: dict[tuple[str, object], str] = {}
    for part, place, piece in said:
        texts[part, place] = texts.get((part, place), "") + piece
    return texts


def said_in(kit: DialectKit, answer: Answer, *, stream: bool) -> dict[tuple[str, object], str]:
    """What a dialect finds that an answer of its kit says."""
    dialect = BY_NAME[kit.name]
    if stream:
        kinds = [b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream"]
        if isinstance(kit, GeminiArrayKit):
            kinds = [b"application/json"]
        form = next(form for kind in kinds if (form := dialect.stream_format(kind, asked=True)))
        payloads = codec_of(dialect, form).payloads([stream_of(kit, answer)])
    else:
        payloads = codec_of(dialect, WHOLE).payloads([kit.whole(answer)])
    return joined(piece for payload in payloads for piece in dialect.said(payload))


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_text_and_reasoning(kit: DialectKit, stream: bool) -> None:
    """All of both, and nothing of calls."""
    found = said_in(kit, ANSWER, stream=stream)
    (view,) = kit.read(stream_of(kit, ANSWER) if stream else kit.whole(ANSWER), stream=stream)
    assert {(part, text) for (part, _), text in found.items()} == {
        (part, text) for part, text in ((TEXT, view.text), (REASONING, view.thinking)) if text
    }
    assert view.text == WORDS.text


@every_dialect
def test_each_choice_by_itself(kit: DialectKit) -> None:
    """Two choices say two texts."""
    answer = Answer(((WORDS,), (Text(("Another ", "text.")),))[: kit.most_choices])
    texts = [text for (part, _), text in said_in(kit, answer, stream=True).items() if part == TEXT]
    assert texts == [answer.text(at) for at in range(len(answer.choices))]


DETAILS = [{"type": "reasoning.text", "text": "a"}]
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "text", "text": "b"}]
PLAN = {"message": {"tool_plan": "a"}}
CASES: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    ("openai-chat", {"choices": [{"delta": {"reasoning": "a", "reasoning_content": "a"}}]}, [(REASONING, "a")]),
    ("openai-chat", {"choices": [{"delta": {"reasoning": "a", "reasoning_details": DETAILS}}]}, [(REASONING, "a")]),
    ("openai-chat", {"choices": [{"delta": {"reasoning_details": DETAILS}}]}, [(REASONING, "a")]),
    ("openai-chat", {"choices": [{"message": {"content": PARTS}}]}, [(TEXT, "b"), (REASONING, "a")]),
    ("openai-chat", {"choices": [{"delta": {"refusal": "No."}}]}, [(TEXT, "No.")]),
    ("openai-responses", {"type": "response.refusal.delta", "delta": "No."}, [(TEXT, "No.")]),
    ("openai-responses", {"type": "response.reasoning_text.delta", "delta": "a"}, [(REASONING, "a")]),
    ("openai-responses", {"type": "response.output_text.done", "text": "all of it once more"}, []),
    ("openai-responses", {"type": "response.completed", "response": {"output": [{"content": PARTS}]}}, []),
    ("anthropic", {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}}, [(TEXT, "a")]),
    ("anthropic", {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "c2ln"}}, []),
    ("cohere-v2", {"type": "tool-plan-delta", "delta": PLAN}, [(REASONING, "a")]),
    ("cohere-v2", PLAN, [(REASONING, "a")]),
]


@pytest.mark.parametrize(("name", "payload", "said"), CASES)
def test_single_payloads(name: str, payload: dict[str, Any], said: list[tuple[str, str]]) -> None:
    """What vendors send that no kit writes; the same text is not told twice."""
    assert [(part, piece) for part, _, piece in BY_NAME[name].said(payload)] == said


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
@given(payload=st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_json(dialect: Dialect, payload: dict[str, Any]) -> None:
    """A text is a text, and a place can be looked up, whatever the values are."""
    for part, place, piece in dialect.said(payload):
        assert part in (TEXT, REASONING)
        assert isinstance(piece, str)
        assert piece
        hash(place)
