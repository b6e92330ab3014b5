"""The processor by itself: what it replies to what Envoy sends."""

import asyncio
import json
import logging
from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from hypothesis import given
from hypothesis import strategies as st

from callfuse.envoy import messages
from callfuse.envoy.messages import BUFFERED, FULL_DUPLEX
from callfuse.envoy.server import SERVING
from callfuse.testing import Answer, ScriptedVendor
from tests.envoy.playing import CHAT, STREAM, Played, health, play, playing
from tests.envoy.processing import idle, processor
from tests.support.asgi import Request
from tests.support.examples import fewer_examples
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise, given_log, meet, reply
from tests.support.model import Answer as Said
from tests.support.scripted import EVENT_STREAM, OTHER_STREAMS
from tests.support.serving import serve
from tests.support.streams import KNOWN, answers, chunkings, looping

BOTH = ((BUFFERED, FULL_DUPLEX), (FULL_DUPLEX, FULL_DUPLEX))
both_modes = pytest.mark.parametrize("modes", BOTH, ids=["buffered", "full duplex"])

LOOP = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": "llamas"}'}}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def history(calls: int, *, stream: bool = True) -> bytes:
    """A request after so many equal calls with equal results."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Find llamas."}]
    for at in range(calls):
        said.append({"role": "assistant", "content": None, "tool_calls": [{**LOOP, "id": f"c{at}"}]})
        said.append({"role": "tool", "tool_call_id": f"c{at}", "content": "nothing"})
    return json.dumps({"model": "m", "stream": stream, "messages": said, "tools": TOOLS}).encode()


def chunks(*, text: str = "", call: bool = True) -> tuple[bytes, ...]:
    """A streamed answer of a chat model, a frame each."""
    deltas: list[dict[str, Any]] = [{"content": text}] if text else []
    deltas += [{"tool_calls": [{"index": 0, **LOOP}]}] if call else []
    frames: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]})
    same: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return (*(b"data: " + json.dumps(same | frame).encode() + b"\n\n" for frame in frames), b"data: [DONE]\n\n")


async def guarded(body: bytes | tuple[bytes, ...], answer: tuple[bytes, ...], **options: Any) -> Played:
    """One exchange through a processor that blocks."""
    async with processor(mode="block") as (address, _):
        return await play(address, body, answer, **options)


@both_modes
async def test_a_healthy_stream_passes_byte_by_byte(modes: tuple[int, int]) -> None:
    """Request and answer, chunk by chunk, and no header of the answer is changed."""
    body, answer = history(0), chunks(text="Hello.", call=True)
    played = await guarded(body, answer, modes=modes)
    assert played.chunks == list(answer)
    assert played.request in (None, body)
    assert (played.to_client, played.removed) == ({}, [])
    assert played.to_vendor == {"x-callfuse-via": "callfuse"}


@both_modes
async def test_a_loop_is_blocked_in_the_stream(modes: tuple[int, int]) -> None:
    """Text before the call stays; of the call nothing reaches the client."""
    played = await guarded(history(2), chunks(text="I look."), modes=modes)
    assert b"I look." in played.body
    assert b"[callfuse]" in played.body
    assert b"llamas" not in played.body
    assert played.body.endswith(b"data: [DONE]\n\n")
    assert played.to_vendor["accept-encoding"] == "identity"


@both_modes
async def test_a_warning_goes_to_the_vendor(modes: tuple[int, int]) -> None:
    """The request is changed, and nothing of the answer."""
    async with processor(mode="warn") as (address, _):
        answer = chunks()
        played = await play(address, history(3), answer, modes=modes)
    assert played.request is not None
    assert "[callfuse]" in json.loads(played.request)["messages"][-1]["content"]
    assert played.body == b"".join(answer)
    assert played.to_vendor["content-length"] == str(len(played.request))  # Envoy refuses another one


async def test_a_whole_answer_that_is_changed_has_another_start() -> None:
    """The action is told, and the length goes."""
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [LOOP]}}
    ]}  # fmt: skip
    body = json.dumps(whole).encode()
    came = ((":status", "200"), ("content-type", "application/json"), ("content-length", str(len(body))))
    played = await guarded(history(2, stream=False), (body[:40], body[40:]), answer_headers=(*came, ("etag", "x")))
    assert played.to_client["x-callfuse-action"].startswith("block")
    assert played.to_client["content-length"] == str(len(played.body))
    assert played.removed == ["etag"]
    assert "[callfuse]" in json.loads(played.body)["choices"][0]["message"]["content"]


async def test_callfuses_own_answer_needs_no_vendor() -> None:
    """A message of commands only is answered at once."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "!/status"}]}).encode()
    played = await guarded(body, ())
    assert played.status == 200
    assert played.to_client["x-callfuse-action"] == "command"
    assert json.loads(played.body)["object"] == "chat.completion"


@both_modes
@every_dialect
def test_what_is_mounted_and_what_envoy_asks_do_the_same(kit: DialectKit, modes: tuple[int, int]) -> None:
    """Any answer of any vendor, in any chunks: the client gets what it gets from the middleware in an app."""
    seen: list[tuple[Request, tuple[bytes, ...], bytes]] = []

    @fewer_examples(2)
    @given(st.data())
    def meeting(data: st.DataObject) -> None:
        request = ask(kit, data.draw(looping()), stream=True)
        said: Said = data.draw(answers(kit, [KNOWN[0]]))
        cut = data.draw(chunkings(reply(kit, said, stream=True).body))
        seen.append((request, cut, meet(request, [framewise(kit, said)]).body))

    async def playing_each() -> None:
        async with processor(mode="block") as (address, _):
            for number, (request, cut, wanted) in enumerate(seen):
                path = request.path + (f"?{request.query.decode()}" if request.query else "")
                kind = OTHER_STREAMS.get(request.path, EVENT_STREAM).decode()
                session = (("x-callfuse-session-id", f"session-{number}"),)
                start = ((":status", "200"), ("content-type", kind))
                played = await play(
                    address, request.body, (*cut, b""), modes=modes, path=path, headers=session, answer_headers=start
                )
                assert played.body == wanted

    meeting()
    asyncio.run(playing_each())


async def test_the_model_is_asked_again_in_the_same_answer() -> None:
    """callfuse asks the vendor itself, with the client's credentials and without Envoy's own headers."""
    vendor = ScriptedVendor([Answer("They are camelids.")])
    async with serve(vendor) as url, processor(url, mode=["steer"]) as (address, fuse):
        mine = (("x-envoy-expected-rq-timeout-ms", "15000"), ("x-mine", "1"))
        played = await play(address, history(2), chunks(text="I look."), headers=mine)
    (asked,) = vendor.requests
    assert asked.guidance
    assert (asked.headers["authorization"], asked.headers["x-mine"]) == ("[redacted]", "1")
    assert "x-envoy-expected-rq-timeout-ms" not in asked.headers
    assert asked.headers["host"] == url.removeprefix("http://")
    frames = [json.loads(line[6:]) for line in played.body.decode().splitlines() if line.startswith("data: {")]
    text = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
    assert text.replace("\n", "") == "I look.They are camelids."
    assert b"search" not in played.body
    assert fuse.counts.of("findings") == fuse.counts.of("findings", "steer") == 1


async def test_what_envoy_still_brings_of_a_left_answer_goes_nowhere() -> None:
    """It may be far more than what is kept waiting."""
    vendor = ScriptedVendor([Answer("They are camelids.")])
    async with serve(vendor) as url, processor(url, mode=["steer"]) as (address, _), playing(address) as stream:
        await stream.begin(CHAT)
        await stream.reply()
        await stream.send(request_body=ext_proc.HttpBody(body=history(2), end_of_stream=True))
        await stream.reply()
        await stream.answer_headers()
        for chunk in chunks():
            await stream.answer_chunk(chunk)
        for _ in range(500):
            await stream.answer_chunk(b"data: {}\n\n")
        body = b""
        while not body.endswith(b"[DONE]\n\n"):
            taken = await stream.reply()
            body += taken.response_body.response.body_mutation.streamed_response.body
    assert b"data: {}" not in body


async def test_without_an_upstream_a_steer_blocks() -> None:
    """The next rung is taken, and why is logged."""
    with given_log() as log:
        async with processor(mode=["steer", "block"]) as (address, fuse):
            played = await play(address, history(2), chunks())
    assert b"[callfuse] Stopped" in played.body
    assert fuse.counts.of("findings", "block") == fuse.counts.of("findings", "steer") == 1
    assert any("could not be asked again" in text for _, _, text in log)


async def test_an_error_lets_the_rest_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of callfuse's own, where the answer begins: headers and chunks go on as they come, and it is told."""

    def broken(*_: object) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(messages, "start_of", broken)
    answer = chunks()
    with given_log() as log:
        async with processor(mode="block") as (address, _):
            for modes in BOTH:
                assert (await play(address, history(2), answer, modes=modes)).body == b"".join(answer)
    assert [level for _, level, text in log if "broken" in text] == [logging.ERROR]


@both_modes
async def test_an_error_in_the_request_lets_it_pass(monkeypatch: pytest.MonkeyPatch, modes: tuple[int, int]) -> None:
    """Request and answer pass as they come."""

    def broken(*_: object) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(messages, "mutation", broken)
    body, answer = history(2), chunks()
    with given_log():
        async with processor(mode="block") as (address, _):
            cut = (body,) if modes[0] == BUFFERED else (body[:50], body[50:])
            played = await play(address, cut, answer, modes=modes)
    assert played.request in (None, body)
    assert played.body == b"".join(answer)


async def test_what_cannot_be_guarded_passes_and_is_told_once() -> None:
    """Envoy may be set up so that answers cannot be changed."""
    streamed = (BUFFERED, 1)
    with given_log() as log:
        async with processor(mode="block") as (address, _):
            for _ in range(2):
                async with playing(address, streamed) as stream:
                    await stream.begin(CHAT)
                    assert (await stream.reply()).WhichOneof("response") == "request_headers"
                    await stream.send(request_body=ext_proc.HttpBody(body=history(2), end_of_stream=True))
                    assert (await stream.reply()).HasField("request_body")
                    await stream.answer_headers()
                    assert (await stream.reply()).HasField("response_headers")
                    await stream.answer_chunk(chunks()[0])
                    passed = await stream.reply()
                    assert not passed.response_body.response.HasField("body_mutation")
    assert len([text for _, _, text in log if "response_body_mode" in text]) == 1


@both_modes
async def test_trailers_end_both_sides(modes: tuple[int, int]) -> None:
    """Neither body ends before its trailers."""
    body, answer = history(0), chunks(text="Hello.", call=False)
    played = await guarded(body, answer, modes=modes, trailers=True)
    assert played.has_trailers
    assert played.body == b"".join(answer)
    assert played.request in (None, body)


async def test_an_answer_without_a_body_is_its_headers() -> None:
    """As after a HEAD; the request has no body either."""
    async with processor() as (address, _), playing(address) as stream:
        await stream.begin("/v1/models", last=True, method="HEAD")
        assert (await stream.reply()).HasField("request_headers")
        await stream.answer_headers(last=True)
        assert (await stream.reply()).HasField("response_headers")


async def test_the_end_of_a_request_may_come_twice() -> None:
    """Some releases of Envoy send the last chunk of a long body again; the vendor gets it once."""
    async with processor() as (address, _), playing(address, BOTH[1]) as stream:
        await stream.begin(CHAT)
        for _ in range(200):
            await stream.send(request_body=ext_proc.HttpBody(body=history(0), end_of_stream=True))
        assert (await stream.reply()).HasField("request_headers")
        sent = (await stream.reply()).request_body.response.body_mutation.streamed_response
        assert (sent.body, sent.end_of_stream) == (history(0), True)
        await stream.answer_headers()
        assert (await stream.reply()).HasField("response_headers")


async def test_a_client_that_goes_is_told_to_the_middleware() -> None:
    """The exchange ends, and no error is logged."""
    with given_log(logging.WARNING) as log:
        async with processor(mode="block") as (address, fuse):
            async with playing(address) as stream:
                await stream.begin(CHAT)
                await stream.reply()
                await stream.send(request_body=ext_proc.HttpBody(body=history(2), end_of_stream=True))
                await stream.reply()
                await stream.answer_headers(STREAM)
                await stream.reply()
                assert fuse.in_flight == 1
                stream.cancel()
            await idle(fuse)
    assert log == []


@pytest.mark.parametrize("modes", [*BOTH, (BUFFERED, 1)], ids=["buffered", "full duplex", "unguarded"])
async def test_a_client_that_goes_at_once_is_no_error(modes: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    """Whatever reply is on its way: neither callfuse nor gRPC logs one."""
    async with processor(mode="block") as (address, fuse):
        for sent in range(3):
            async with playing(address, modes) as stream:
                await stream.begin(CHAT)
                for _ in range(sent):
                    await stream.send(request_body=ext_proc.HttpBody(body=history(2), end_of_stream=True))
                stream.cancel()
        await idle(fuse)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_it_is_healthy() -> None:
    """For the probes of Kubernetes and of Envoy."""
    async with processor() as (address, _):
        assert await health(address) == SERVING
