"""The scripted vendor as Ollama: its lines and bodies, read by the official SDK."""

from typing import Any

import httpx
import ollama
import orjson
import pytest

from callfuse.testing import Answer, Call, Fault, ScriptedVendor, Usage
from tests.support.kits.ollama import merged
from tests.support.rules import StrictVendor

pytestmark = pytest.mark.slow

HELLO = {"role": "user", "content": "hi"}
ANSWER = Answer(
    "Let me look at it.",
    (Call("search", {"query": "llamas"}), Call("read", '{"id": 7}', id="call_mine"), Call("odd", "no JSON")),
    "A thought of some length.",
    usage=Usage(10, 5),
)


async def ask(vendor: ScriptedVendor, *, stream: bool, messages: Any = (HELLO,)) -> list[ollama.ChatResponse]:
    """The parts of the vendor's answer, through the SDK."""
    async with ollama.AsyncClient("http://vendor.test", transport=httpx.ASGITransport(app=vendor)) as client:
        if not stream:
            return [await client.chat("m", messages)]
        return [part async for part in await client.chat("m", messages, stream=True)]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_answer_as_the_sdk_reads_it(stream: bool) -> None:
    """Thinking, text, calls with arguments as objects, and the counts at the end."""
    parts = await ask(StrictVendor([ANSWER]), stream=stream)
    message, end = merged(parts), parts[-1]
    assert (message.content, message.thinking) == ("Let me look at it.", "A thought of some length.")
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls or []] == [
        ("search", {"query": "llamas"}),
        ("read", {"id": 7}),
        ("odd", {}),
    ]
    assert (end.model, end.done, end.done_reason) == ("m", True, "stop")
    assert (end.prompt_eval_count, end.eval_count) == (10, 5)
    assert len(parts) == (9 if stream else 1)


async def test_a_stream_need_not_be_asked_for() -> None:
    """Ollama streams unless it is told not to; calls have ids and indexes on the wire."""
    vendor = StrictVendor(lambda _: ANSWER)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=vendor), base_url="http://vendor.test") as client:
        answer = await client.post("/api/chat", json={"model": "m", "messages": [HELLO]})
        whole = await client.post("/api/chat", json={"model": "m", "messages": [HELLO], "stream": False})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert whole.headers["content-type"] == "application/json"
    lines = [orjson.loads(line) for line in answer.content.splitlines()]
    calls = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert [(call["id"], call["function"]["index"]) for call in calls] == [
        ("call_scripted_1_0_0", 0),
        ("call_mine", 1),
        ("call_scripted_1_0_2", 2),
    ]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]


async def test_what_is_refused() -> None:
    """A broken rule and an error in the stream are what the SDK calls a ResponseError."""
    vendor = StrictVendor([Fault.error_event(ANSWER, after_frames=2, message="out of memory")])
    with pytest.raises(ollama.ResponseError, match="out of memory"):
        await ask(vendor, stream=True)
    with pytest.raises(ollama.ResponseError, match=r"messages\[0\]"):
        await ask(StrictVendor([ANSWER]), stream=False, messages=[{"role": "tool", "content": "x"}])


async def test_the_last_round_is_read() -> None:
    """A script is told which calls have been answered, and with what."""
    seen: list[Any] = []

    def script(request: Any) -> Answer:
        seen.append((request.calls, request.results, request.guidance))
        return Answer("Ok.")

    turns = [
        HELLO,
        {"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": {"q": 1}}}]},
        {"role": "tool", "tool_name": "search", "content": "nothing [callfuse] Again?"},
    ]
    await ask(StrictVendor(script), stream=False, messages=turns)
    ((calls, results, guidance),) = seen
    assert [(call.name, dict(call.arguments)) for call in calls] == [("search", {"q": 1})]
    assert results == ("nothing [callfuse] Again?",)
    assert guidance == "[callfuse] Again?"
