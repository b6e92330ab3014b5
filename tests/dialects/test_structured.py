"""Structured output stays valid: two answers of a steer never bring two texts, which together would be no JSON."""

import json
from typing import Any

import pytest

from tests.dialects.reading import dialect_of
from tests.support.asgi import JSON_REQUEST, Request
from tests.support.kits import KITS, DialectKit, target_of
from tests.support.meeting import Meeting, meet, reply
from tests.support.model import Call, Text
from tests.support.plain import new_call, same_call, saying, spin

SCHEMA = {"type": "object", "properties": {"zebra": {"type": "boolean"}}}
FORMATS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"response_format": {"type": "json_object"}}],
    "openai-responses": [{"text": {"format": {"type": "json_schema", "name": "z", "schema": SCHEMA}}}],
    "anthropic": [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    ],
    "ollama": [{"format": "json"}, {"format": SCHEMA}],
    "gemini": [
        {"generationConfig": {"responseMimeType": "application/json", "responseSchema": SCHEMA}},
        {"generation_config": {"response_json_schema": SCHEMA}},
    ],
    "gemini-interactions": [{"response_format": {"type": "text", "schema": SCHEMA}}],
    "cohere-v2": [{"response_format": {"type": "json_object"}}],
    "bedrock-converse": [{"outputConfig": {"textFormat": {"type": "json_schema", "structure": {}}}}],
}
CASES = [(kit, more) for kit in KITS for more in FORMATS[kit.name]]
each = pytest.mark.parametrize(
    ("kit", "more"), CASES, ids=[f"{type(kit).__name__}-{next(iter(more))}" for kit, more in CASES]
)
FIRST, SECOND = '{"zebra": false}', '{"zebra": true}'


def asked(kit: DialectKit, more: dict[str, Any], *, stream: bool) -> Request:
    """A request about a loop that wants structured output."""
    path, query = target_of(kit, stream=stream)
    payload = json.loads(kit.request(spin(), stream=stream)) | more
    if "generation_config" in more:
        payload.pop("generationConfig", None)
    body = json.dumps(payload).encode()
    return Request(path, body, JSON_REQUEST, query=query)


def steered(kit: DialectKit, more: dict[str, Any], *items: Call | Text, stream: bool) -> Meeting:
    """An answer of these items that is withheld, and a second one that says its text."""
    replies = [
        reply(kit, saying(*items), stream=stream),
        reply(kit, saying(SECOND, tag="second"), stream=stream),
    ]
    return meet(asked(kit, more, stream=stream), replies, "chance_then_block")


@each
def test_it_is_recognised(kit: DialectKit, more: dict[str, Any]) -> None:
    """By the settings of each vendor, and not without them."""
    for settings, structured in ((more, True), ({}, False)):
        request = asked(kit, settings, stream=True)
        found = dialect_of(kit.name).read_request(request.body, json.loads(request.body), request.path)
        assert found is not None
        assert found.structured is structured


@each
def test_text_that_has_left_forbids_another(kit: DialectKit, more: dict[str, Any]) -> None:
    """The model is not asked again: the loop is blocked at once."""
    met = steered(kit, more, Text((FIRST,)), same_call("call_first"), stream=True)
    assert len(met.app.heard) == 1
    assert b"call_first" not in met.body
    assert FIRST in kit.read(met.body, stream=True)[0].text


@each
def test_a_whole_answer_has_one_text(kit: DialectKit, more: dict[str, Any]) -> None:
    """Nothing of the first answer has left, so its text gives way to the second one's."""
    met = steered(kit, more, Text((FIRST,)), same_call("call_first"), stream=False)
    assert len(met.app.heard) == 2
    (view,) = kit.read(met.body, stream=False)
    assert view.text == SECOND
    assert not view.calls


@each
def test_held_text_gives_way(kit: DialectKit, more: dict[str, Any]) -> None:
    """A text behind the call has not left, either."""
    if not kit.late_text:
        pytest.skip("no text behind a call")
    met = steered(kit, more, same_call("call_first"), Text((FIRST,)), stream=True)
    assert len(met.app.heard) == 2
    assert kit.read(met.body, stream=True)[0].text == SECOND
    assert not kit.faults(met.body)


@each
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_second_call_comes_through(kit: DialectKit, more: dict[str, Any], stream: bool) -> None:
    """A call and no text is what agents with structured output mostly get."""
    replies = [
        reply(kit, saying(same_call("call_first")), stream=stream),
        reply(kit, saying(new_call("call_second"), tag="second"), stream=stream),
    ]
    met = meet(asked(kit, more, stream=stream), replies, "chance_then_block")
    (view,) = kit.read(met.body, stream=stream)
    assert [call.id for call in view.calls] in (["call_second"], [""])
