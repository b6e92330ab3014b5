"""Through a real Envoy, set up as the sample has it: clients on one side, a scripted vendor on the other."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call, Fault, ScriptedVendor, VendorRequest
from tests.envoy.envoys import Change, envoy, filter_settings, full_duplex, needs_envoy, route
from tests.envoy.playing import CHAT
from tests.envoy.processing import idle, processor
from tests.envoy.test_processor import chunks, history
from tests.sdk.talks import TALKS, agent
from tests.support.asgi import App
from tests.support.redis import free_port
from tests.support.serving import serve

pytestmark = needs_envoy

both_modes = pytest.mark.parametrize("changes", [(), (full_duplex,)], ids=["buffered", "full duplex"])
PATIENCE_S = 30.0
KEY = {"authorization": "Bearer key-of-the-test", "content-type": "application/json"}
SEARCH = Call("search", {"q": "llamas"})


def searching(request: VendorRequest) -> Answer:
    """Searches for ever, unless it is told that this leads nowhere."""
    return Answer("They are camelids.") if request.guidance else Answer("I look.", (SEARCH,))


@asynccontextmanager
async def wired(
    vendor: App, folder: Path, *changes: Change, asks: bool = False, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, str, CallFuseMiddleware]]:
    """A client of an Envoy with a processor before this vendor, the vendor's own URL, and the middleware. `asks`: the
    processor can ask the vendor itself."""
    async with (
        serve(vendor) as url,
        processor(url if asks else None, **settings) as (address, fuse),
        envoy(folder, address, url, *changes) as base,
        httpx.AsyncClient(base_url=base, headers=KEY, timeout=PATIENCE_S, trust_env=False) as client,
    ):
        yield client, url, fuse


@both_modes
async def test_healthy_answers_pass_byte_by_byte(tmp_path: Path, changes: tuple[Change, ...]) -> None:
    """Streams and whole answers, requests with and without a body, and long ones."""
    vendor = ScriptedVendor(lambda _: Answer("They are camelids. " * 20, (SEARCH,)))
    long = json.loads(history(0)) | {"metadata": {"note": "x" * 3_000_000}}
    async with wired(vendor, tmp_path, *changes, mode="block") as (client, url, _), httpx.AsyncClient() as direct:
        for body in (history(0), history(0, stream=False), json.dumps(long).encode()):
            mine = await client.post(CHAT, content=body)
            theirs = await direct.post(url + CHAT, content=body)
            number = len(vendor.requests)
            wanted = theirs.content.replace(f"scripted-{number}".encode(), f"scripted-{number - 1}".encode())
            wanted = wanted.replace(f"scripted_{number}".encode(), f"scripted_{number - 1}".encode())
            created = (str(1700000000 + number).encode(), str(1699999999 + number).encode())
            assert (mine.status_code, mine.content) == (200, wanted.replace(*created))
            assert vendor.requests[-2].raw == body
            assert vendor.requests[-2].headers["x-callfuse-via"] == "callfuse"
        missing = await client.get("/v1/nothing")
        assert (missing.status_code, "is not served here" in missing.text) == (404, True)


@both_modes
async def test_a_loop_is_blocked_in_the_stream(tmp_path: Path, changes: tuple[Change, ...]) -> None:
    """The text stays, the call goes, and the vendor was asked for plain bytes."""
    vendor = ScriptedVendor(searching)
    async with wired(vendor, tmp_path, *changes, mode="block") as (client, _, _):
        got = await client.post(CHAT, content=history(2), headers={"accept-encoding": "gzip"})
        assert got.status_code == 200
        assert "I look." in got.text
        assert "[callfuse] Stopped" in got.text
        assert "llamas" not in got.text
        assert vendor.requests[-1].headers["accept-encoding"] == "identity"
        whole = await client.post(CHAT, content=history(2, stream=False))
        assert whole.headers["x-callfuse-action"].startswith("block")
        assert "[callfuse] Stopped" in whole.json()["choices"][0]["message"]["content"]


@both_modes
@pytest.mark.parametrize("sdk", TALKS)
@pytest.mark.parametrize("way", ["raw", "whole"])
async def test_an_agent_is_steered_in_the_same_answer(
    tmp_path: Path, changes: tuple[Change, ...], sdk: str, way: Any
) -> None:
    """With the official SDKs: the third call is not made, and the answer goes on in words."""
    vendor = ScriptedVendor(searching)
    async with wired(vendor, tmp_path, *changes, asks=True, mode=["steer", "block"]) as (client, _, fuse):
        ran = await agent(TALKS[sdk](str(client.base_url), way, sync=False))
    assert [len(said.calls) for said in ran.answers] == [1, 1, 0]
    assert ran.end.text.replace("\n", "") == "I look.They are camelids."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True]
    assert fuse.counts.of("findings", "steer") == 1


@pytest.mark.parametrize("sdk", TALKS)
async def test_an_agent_is_warned(tmp_path: Path, sdk: str) -> None:
    """The warning goes with the result to the model, which heeds it."""

    def heeding(request: VendorRequest) -> Answer:
        return Answer("I stop.") if b"[callfuse]" in request.raw else Answer("I look.", (SEARCH,))

    async with wired(ScriptedVendor(heeding), tmp_path, mode="warn") as (client, _, _):
        ran = await agent(TALKS[sdk](str(client.base_url), "raw", sync=False))
    assert ran.end.text == "I stop."
    assert len(ran.answers) < 6


async def test_callfuse_answers_itself(tmp_path: Path) -> None:
    """A message of commands only reaches no vendor."""
    vendor = ScriptedVendor(searching)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "!/status"}]}).encode()
    async with wired(vendor, tmp_path) as (client, _, _):
        got = await client.post(CHAT, content=body)
    assert (got.status_code, got.headers["x-callfuse-action"]) == (200, "command")
    assert got.json()["object"] == "chat.completion"
    assert vendor.requests == []


class Endless:
    """A vendor that calls a tool and then goes on for as long as somebody listens."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        """Set when the first one who listened has gone."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            continue
        started = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(started)
        gone = asyncio.Event()
        listening = asyncio.create_task(self._listen(receive, gone))
        function = {"name": "search", "arguments": '{"q": "llamas"}'}
        delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
        while not gone.is_set():
            frame = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
                {"index": 0, "delta": delta, "finish_reason": None}
            ]}  # fmt: skip
            body = b"data: %b\n\n" % json.dumps(frame).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(0.01)
            delta = {"content": "more "}
        await listening

    async def _listen(self, receive: Any, gone: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        gone.set()
        self.left.set()


async def test_a_client_that_goes_is_known_everywhere(tmp_path: Path) -> None:
    """To the vendor and to callfuse."""
    vendor = Endless()
    async with wired(vendor, tmp_path, mode="block") as (client, _, fuse):
        async with client.stream("POST", CHAT, content=history(0)) as got:
            async for line in got.aiter_lines():
                if "more" in line:
                    break
            assert fuse.in_flight == 1
        async with asyncio.timeout(PATIENCE_S):
            await vendor.left.wait()
        await idle(fuse)


async def test_a_failing_vendor_is_asked_again_by_envoy(tmp_path: Path) -> None:
    """Envoy's own retries are not seen: each sends the request as callfuse has left it."""

    def retrying(config: dict[str, Any]) -> None:
        route(config)["retry_policy"] = {"retry_on": "5xx", "num_retries": 2}

    vendor = ScriptedVendor([Fault.http(503, "busy"), Answer("I look.", (SEARCH,))])
    async with wired(vendor, tmp_path, retrying, mode="block") as (client, _, fuse):
        got = await client.post(CHAT, content=history(2))
    assert "[callfuse] Stopped" in got.text
    assert len(vendor.requests) == 2
    assert vendor.requests[0].raw == vendor.requests[1].raw
    assert fuse.counts.of("findings", "block") == 1


class Hesitant:
    """A vendor that pauses between the beginning of a call and its end."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            continue
        first, *others = chunks()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        await asyncio.sleep(1)
        await send({"type": "http.response.body", "body": b"".join(others)})


async def test_a_hold_may_last_longer_than_a_message(tmp_path: Path) -> None:
    """`message_timeout` does not limit what callfuse holds back of a stream, as `doctor --envoy` takes it."""

    def impatient(config: dict[str, Any]) -> None:
        filter_settings(config)["message_timeout"] = "0.1s"

    async with wired(Hesitant(), tmp_path, full_duplex, impatient, mode="block") as (client, _, _):
        got = await client.post(CHAT, content=history(2))
    assert "[callfuse] Stopped" in got.text
    assert "llamas" not in got.text


async def test_without_http_2_nothing_is_guarded(tmp_path: Path) -> None:
    """Envoy cannot call callfuse, and does not say so to anybody."""

    def without(config: dict[str, Any]) -> None:
        del config["static_resources"]["clusters"][0]["typed_extension_protocol_options"]

    async with wired(ScriptedVendor(searching), tmp_path, without, mode="block") as (client, _, _):
        got = await client.post(CHAT, content=history(2))
    assert "llamas" in got.text


async def test_without_a_processor_traffic_goes_on(tmp_path: Path) -> None:
    """Nothing listens there."""
    async with (
        serve(ScriptedVendor(searching)) as url,
        envoy(tmp_path, f"127.0.0.1:{free_port()}", url) as base,
        httpx.AsyncClient(base_url=base, headers=KEY, timeout=PATIENCE_S, trust_env=False) as client,
    ):
        got = await client.post(CHAT, content=history(2))
    assert "llamas" in got.text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
async def test_a_processor_that_ends_takes_no_traffic_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a stream: what comes next goes on without it. A stream may end in its own time, unless the
    processor is killed."""
    vendor, address = Endless(), f"unix:{tmp_path}/callfuse.sock"
    command = (sys.executable, "-m", "callfuse", "ext-proc", "--listen", address, "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        assert await process.stderr.readline()  # it listens
        async with (
            serve(vendor) as url,
            envoy(tmp_path, address, url) as base,
            httpx.AsyncClient(base_url=base, headers=KEY, timeout=PATIENCE_S, trust_env=False) as client,
        ):
            seen = 0
            with suppress(httpx.HTTPError):
                async with client.stream("POST", CHAT, content=history(0)) as got:
                    async for line in got.aiter_lines():
                        seen += "more" in line
                        if seen == 3:
                            process.send_signal(number)
                        if seen == 20:
                            break
            assert seen == 20 or number == signal.SIGKILL
            async with client.stream("POST", CHAT, content=history(2)) as got:
                first = await anext(got.aiter_lines())
            assert "llamas" in first
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
