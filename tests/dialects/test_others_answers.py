"""Answers of another model than the client asked, as the client gets them: without reasoning, in its own numbering."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from callfuse.dialects import dialect_of
from callfuse.dialects.base import Request
from callfuse.dialects.gemini.request import GeminiRequest
from callfuse.dialects.openai_responses.request import ResponsesRequest
from callfuse.wire import EVENTS, JSON_ARRAY, Format

STAND_IN = "skip_thought_signature_validator"


def request(path: str, **body: Any) -> Request:
    """A request as its dialect reads it."""
    dialect = dialect_of(path)
    assert dialect is not None
    found = dialect.read_request(json.dumps(body).encode(), body, path)
    assert found is not None
    return found


def event(payload: Any) -> bytes:
    """An event without a name."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def spliced(asked: Request, before: Sequence[Any], *frames: Any, form: Format = EVENTS) -> list[Any]:
    """What the client gets of another model's frames, once it has had these payloads."""
    writer = asked.writer(usage="last")
    for payload in before:
        writer.note_sent(payload)
    writer.before_asking([], set())
    writer.next_answer(foreign=True)
    out = [writer.splice(event(frame), frame) for frame in frames]
    return [form.payload(one) for one in out if one]


def delta(said: Any, model: str = "m", finish: str | None = None) -> dict[str, Any]:
    """A chat completion chunk."""
    return {"id": "c", "model": model, "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


CHAT = request("/v1/chat/completions", model="m", messages=[], tools=[{}])
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}


def call(index: int, **more: Any) -> dict[str, Any]:
    """A whole call in a delta."""
    return {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": "{}"}, **more}


def test_openai_chat_reasoning() -> None:
    """A chunk that has nothing else is not passed on; one that has keeps the rest."""
    found = spliced(
        CHAT,
        [delta({"role": "assistant", "content": "Hm."})],
        delta({"role": "assistant", "content": None, "reasoning": "hm"}),
        delta({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        delta({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        delta({"reasoning_content": "hm", "content": "So."}),
        delta({"content": [{"type": "thinking"}, {"type": "text", "text": "Yes."}]}),
        delta({"reasoning_content": "hm"}, finish="stop"),
    )
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert deltas == [{"content": "\n\nSo."}, {"content": [{"type": "text", "text": "Yes."}]}, {}]
    assert found[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("model", "signed", "stands_in"),
    [
        ("gemini-3-flash", True, True),
        ("gemini-3-flash", False, True),
        ("alias", True, True),
        ("alias", False, False),
        ("gemini-2.5-flash", True, False),
    ],
)
def test_openai_chat_signatures(model: str, signed: bool, stands_in: bool) -> None:
    """They hold for one model: where the client's may want one, the answer's first call has the stand-in."""
    calls = [call(at, **(SIGNED if signed and at < 2 else {})) for at in range(3)]
    found = spliced(CHAT, [delta({"role": "assistant"}, model)], *(delta({"tool_calls": [one]}) for one in calls))
    google = SIGNED["extra_content"] if signed else {}
    assert [chunk["choices"][0]["delta"]["tool_calls"][0].get("extra_content") for chunk in found] == [
        google | {"google": {"thought_signature": STAND_IN}} if stands_in else None,
        None,
        None,
    ]
    whole = {"model": model, "choices": [{"message": {"role": "assistant", "content": None}}]}
    other = {"model": "b", "choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]}
    made = joined(CHAT, whole, other)["choices"][0]["message"]["tool_calls"]
    assert [STAND_IN in json.dumps(one) for one in made] == [stands_in, False, False]
    assert "c2ln" not in json.dumps(made)


def joined(asked: Request, first: Any, second: Any) -> Any:
    """Two whole answers as one, the second of another model."""
    texts = json.dumps(first).encode(), json.dumps(second).encode()
    return json.loads(asked.writer(usage="last").splice_whole(*texts, foreign=True))


def test_openai_chat_whole() -> None:
    """The reasoning that the client is given is its own model's, as in a stream."""
    own = {"role": "assistant", "content": "Hm.", "reasoning_content": "mine"}
    theirs = {"role": "assistant", "content": "So.", "reasoning_content": "theirs", "reasoning": "theirs"}
    made = joined(CHAT, {"choices": [{"message": own}]}, {"choices": [{"message": theirs}]})
    wanted = {"role": "assistant", "content": "Hm.\n\nSo.", "reasoning_content": "mine"}
    assert made["choices"][0]["message"] == wanted


GEMINI = request("/v1beta/models/gemini-3-pro:streamGenerateContent", contents=[], tools=[{}])
GEMINI_2 = request("/v1beta/models/gemini-2.5-pro:streamGenerateContent", contents=[], tools=[{}])


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A Gemini chunk."""
    ended = {"finishReason": finish} if finish else {}
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **ended}], **more}


THOUGHT = {"text": "hm", "thought": True, "thoughtSignature": "c2ln"}
FUNCTION = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}


def test_gemini_thoughts() -> None:
    """Chunks of thoughts go, and every signature with them; one that ends the answer keeps its end."""
    found = spliced(
        GEMINI,
        [chunk({"text": "Hm."})],
        chunk(THOUGHT, usageMetadata={"promptTokenCount": 1}),
        chunk({"text": "", "thoughtSignature": "c2ln"}),
        chunk(THOUGHT, {"text": "So.", "thoughtSignature": "c2ln"}),
        chunk(FUNCTION, FUNCTION),
        chunk(FUNCTION),
        chunk({"text": "", "thoughtSignature": "c2ln"}, finish="STOP"),
    )
    plain = {"functionCall": FUNCTION["functionCall"]}
    assert [one["candidates"][0]["content"]["parts"] for one in found] == [
        [{"text": "\n\nSo."}],
        [FUNCTION | {"thoughtSignature": STAND_IN}, plain],
        [plain],
        [{"text": ""}],
    ]
    assert found[-1]["candidates"][0]["finishReason"] == "STOP"


def test_gemini_2_takes_no_stand_in() -> None:
    """It wants no signature, and might refuse a made-up one."""
    (only,) = spliced(GEMINI_2, [chunk({"text": "Hm."})], chunk(FUNCTION))
    assert "thoughtSignature" not in json.dumps(only)


def test_gemini_arrays() -> None:
    """Where elements go, the array stays one."""
    asked = request("/v1beta/models/gemini-3-pro:streamGenerateContent", contents=[], tools=[{}])
    assert isinstance(asked, GeminiRequest)
    writer = asked.writer(usage="last", form=JSON_ARRAY)
    writer.before_asking([], set())
    writer.next_answer(foreign=True)
    framer = JSON_ARRAY.framer()
    body = json.dumps([chunk(THOUGHT), chunk({"text": "So."}), chunk(THOUGHT), chunk(FUNCTION, finish="STOP")]).encode()
    out = b"".join(writer.splice(raw, JSON_ARRAY.payload(raw)) for raw in (*framer.feed(body), framer.flush()) if raw)
    assert [one["candidates"][0]["content"]["parts"] for one in json.loads(out)] == [
        [{"text": "So."}],
        [FUNCTION | {"thoughtSignature": STAND_IN}],
    ]


def test_gemini_whole() -> None:
    """The same of whole answers; one that is nothing but thoughts leaves what went before."""
    first = chunk(THOUGHT | {"text": "mine"}, {"text": "Hm."}, finish="STOP")
    made = joined(GEMINI, first, chunk(THOUGHT, {"text": "So."}, FUNCTION, FUNCTION, finish="STOP"))
    parts = made["candidates"][0]["content"]["parts"]
    assert parts[:2] == first["candidates"][0]["content"]["parts"]
    plain = {"functionCall": FUNCTION["functionCall"]}
    assert parts[2:] == [{"text": "\n\nSo."}, FUNCTION | {"thoughtSignature": STAND_IN}, plain]
    only = joined(GEMINI, first, chunk(THOUGHT, finish="STOP"))
    assert only["candidates"][0]["content"]["parts"] == parts[:2]


def responses(**more: Any) -> ResponsesRequest:
    """A Responses request."""
    found = request("/v1/responses", model="m", input="Find it.", tools=[{}], **more)
    assert isinstance(found, ResponsesRequest)
    return found


ITEMS: list[Any] = [
    {"type": "message", "id": "msg_a", "role": "assistant", "content": []},
    {"type": "reasoning", "id": "rs_b", "summary": []},
    {"type": "function_call", "id": "fc_c", "call_id": "c", "name": "f", "arguments": "{}"},
]


@pytest.mark.parametrize("stored", [True, False])
def test_responses_items(stored: bool) -> None:
    """Reasoning goes with all its events, the rest counts on; what the vendor takes with it only goes bare later."""
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "model": "m"}}
    events: list[Any] = [created]
    for at, item in enumerate(ITEMS):
        events += [
            {"type": f"response.output_item.{what}", "output_index": at, "item": item} for what in ("added", "done")
        ]
    summary = {"type": "response.reasoning_summary_text.delta", "output_index": 1, "delta": "hm"}
    ended = {"type": "response.completed", "response": {"id": "resp_2", "model": "b", "output": ITEMS}}
    events = [*events[:4], summary, *events[4:], ended]
    asked = responses(store=stored)
    found = spliced(asked, [created], *(one | {"sequence_number": at} for at, one in enumerate(events)))
    kinds = [(one["type"].rpartition(".")[2], one.get("output_index")) for one in found]
    assert kinds == [("added", 0), ("done", 0), ("added", 1), ("done", 1), ("completed", None)]
    assert [one["sequence_number"] for one in found] == [1, 2, 3, 4, 5]
    assert found[-1]["response"] == {"id": "resp_1", "model": "m", "output": [ITEMS[0], ITEMS[2]]}
    assert set(asked.trail.items) == ({"fc_c"} if stored else set())


def test_responses_whole() -> None:
    """The same of whole answers."""
    asked = responses()
    made = joined(asked, {"id": "resp_1", "output": []}, {"id": "resp_2", "output": ITEMS})
    assert made == {"id": "resp_1", "output": [ITEMS[0], ITEMS[2]]}
    assert b'"id"' not in asked.trail.items["fc_c"]


COHERE = request("/v2/chat", model="m", messages=[], tools=[{}])


def block(kind: str, index: int, what: str = "start") -> dict[str, Any]:
    """An event of a Cohere content block."""
    content = {"type": kind, kind: ""} if what == "start" else {kind: "x"}
    more = {} if what == "end" else {"delta": {"message": {"content": content}}}
    return {"type": f"content-{what}", "index": index, **more}


def cited(index: int, about: int) -> dict[str, Any]:
    """A citation."""
    return {"type": "citation-start", "index": index, "delta": {"message": {"citations": {"content_index": about}}}}


def test_cohere_blocks() -> None:
    """Thinking goes with what is cited in it; blocks and citations count on without a gap."""
    own = [block("text", 0), cited(0, 0)]
    frames = [
        block(kind, at, what) for at, kind in enumerate(("thinking", "text")) for what in ("start", "delta", "end")
    ]
    cites = [cited(0, 0), {"type": "citation-end", "index": 0}, cited(1, 1), {"type": "citation-end", "index": 1}]
    found = spliced(COHERE, own, *frames, *cites)
    assert found == [block("text", 1, what) for what in ("start", "delta", "end")] + [
        cited(1, 1),
        {"type": "citation-end", "index": 1},
    ]


def test_cohere_whole() -> None:
    """The same of whole answers; a content that was nothing but thinking goes."""
    thinking, text = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "So."}
    second = {"message": {"content": [thinking, text], "citations": [{"content_index": 0}, {"content_index": 1}]}}
    made = joined(COHERE, {"message": {"content": [text]}}, second)
    assert made["message"] == {"content": [text, text], "citations": [{"content_index": 1}]}
    only = joined(COHERE, {"message": {}}, {"message": {"content": [thinking], "tool_calls": []}})
    assert only["message"] == {"tool_calls": []}


def test_bedrock_whole() -> None:
    """Its reasoning goes even where nothing went before it."""
    asked = request("/model/a/converse", messages=[], toolConfig={"tools": [{}]})
    reasons, text = {"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "So."}
    first, second = ({"output": {"message": {"content": blocks}}} for blocks in ([], [reasons, text]))
    assert joined(asked, first, second)["output"]["message"]["content"] == [text]


def test_anthropic_whole() -> None:
    """So does thinking, redacted or not; the first answer's stays."""
    asked = request("/v1/messages", model="m", max_tokens=10, messages=[], tools=[{}])
    thinking, redacted = {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking"}
    text = {"type": "text", "text": "So."}
    made = joined(asked, {"id": "a", "content": [thinking]}, {"id": "b", "content": [thinking, redacted, text]})
    assert made == {"id": "a", "content": [thinking, text]}
    assert joined(asked, {"id": "a", "content": []}, {"id": "b", "content": [thinking, text]})["content"] == [text]
