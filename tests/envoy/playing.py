"""Plays Envoy for a processor: a gRPC client that sends what Envoy sends, and does what the replies say.

In: a request, and the vendor's answer in chunks. Out: a `Played`, with what went to the vendor and to the client.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from callfuse.envoy.messages import BUFFERED, FULL_DUPLEX
from callfuse.envoy.server import HEALTH_SERVICE, SERVICE

Pairs = Iterable[tuple[str, str]]

STREAM: Pairs = ((":status", "200"), ("content-type", "text/event-stream"))
CHAT = "/v1/chat/completions"
PATIENCE_S = 20.0


@dataclass
class Played:
    """What became of a request: the headers that were set and removed on each side, and the bodies."""

    to_vendor: dict[str, str] = field(default_factory=dict)
    to_client: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    request: bytes | None = None
    """The request's body as it went to the vendor; None if it stayed as it came."""
    chunks: list[bytes] = field(default_factory=list)
    status: int = 0
    """That of an answer which did not come from the vendor."""
    has_trailers: bool = False

    @property
    def body(self) -> bytes:
        """The client's body."""
        return b"".join(self.chunks)


class Playing:
    """One stream, message by message."""

    def __init__(self, call: Any, modes: tuple[int, int]) -> None:
        self._call = call
        self.modes = modes

    async def send(self, **parts: Any) -> None:
        """Send a message."""
        await self._call.write(ext_proc.ProcessingRequest(**parts))

    async def reply(self) -> Any:
        """The next reply; None once the stream is over."""
        async with asyncio.timeout(PATIENCE_S):
            read = await self._call.read()
        return None if read is grpc.aio.EOF else read

    async def begin(self, path: str, headers: Pairs = (), *, last: bool = False, method: str = "POST") -> None:
        """Send the headers of a request."""
        request, response = self.modes
        config = ext_proc.ProtocolConfiguration(request_body_mode=request, response_body_mode=response)
        pseudo = ((":method", method), (":path", path), (":authority", "vendor.test"), (":scheme", "http"))
        given = (*pseudo, ("authorization", "Bearer key-of-the-test"), ("content-type", "application/json"), *headers)
        await self.send(request_headers=http_headers(given, last=last), protocol_config=config)

    async def answer_headers(self, headers: Pairs = STREAM, *, last: bool = False) -> None:
        """Send the headers of the vendor's answer."""
        await self.send(response_headers=http_headers(headers, last=last))

    async def answer_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Send a chunk of the vendor's answer."""
        await self.send(response_body=ext_proc.HttpBody(body=chunk, end_of_stream=last))

    def cancel(self) -> None:
        """The client has gone."""
        self._call.cancel()


def http_headers(headers: Pairs, *, last: bool = False) -> Any:
    """Headers as Envoy sends them."""
    values = [base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in headers]
    return ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=values), end_of_stream=last)


@asynccontextmanager
async def playing(address: str, modes: tuple[int, int] = (BUFFERED, FULL_DUPLEX)) -> AsyncIterator[Playing]:
    """Open a stream."""
    async with grpc.aio.insecure_channel(address) as channel:
        method = channel.stream_stream(
            f"/{SERVICE}/Process", ext_proc.ProcessingRequest.SerializeToString, ext_proc.ProcessingResponse.FromString
        )
        yield Playing(method(), modes)


async def health(address: str) -> bytes:
    """The answer to a health check."""
    async with grpc.aio.insecure_channel(address) as channel:
        checked: bytes = await channel.unary_unary(f"/{HEALTH_SERVICE}/Check")(b"")
        return checked


async def play(
    address: str,
    body: bytes | tuple[bytes, ...],
    answer: Iterable[bytes],
    *,
    modes: tuple[int, int] = (BUFFERED, FULL_DUPLEX),
    path: str = CHAT,
    headers: Pairs = (),
    answer_headers: Pairs = STREAM,
    trailers: bool = False,
) -> Played:
    """Play one request and its answer. `trailers`: both have some."""
    played = Played()
    chunks = (body,) if isinstance(body, bytes) else body
    async with playing(address, modes) as stream:
        await stream.begin(path, headers)
        if modes[0] == BUFFERED:
            _note_headers(await stream.reply(), "request", played)
        for at, chunk in enumerate(chunks):
            is_last = at == len(chunks) - 1 and not trailers
            await stream.send(request_body=ext_proc.HttpBody(body=chunk, end_of_stream=is_last))
        if trailers:
            await stream.send(request_trailers=ext_proc.HttpTrailers())
        if await _play_request(stream, played, trailers=trailers):
            return played
        await stream.answer_headers(answer_headers)
        parts = tuple(answer)
        for at, chunk in enumerate(parts):
            await stream.answer_chunk(chunk, last=at == len(parts) - 1 and not trailers)
        if trailers:
            await stream.send(response_trailers=ext_proc.HttpTrailers())
        await _play_answer(stream, played)
    return played


async def _play_request(stream: Playing, played: Played, *, trailers: bool) -> bool:
    """Take the replies to a request. Whether the client has its answer with that."""
    while (reply := await stream.reply()) is not None:
        kind = reply.WhichOneof("response")
        if kind == "immediate_response":
            played.status = reply.immediate_response.status.code
            played.to_client |= _set_headers(reply.immediate_response.headers)
            played.chunks.append(reply.immediate_response.body)
            return True
        if kind == "request_headers":
            _note_headers(reply, "request", played)
            continue
        if kind == "request_trailers":
            return False
        common = reply.request_body.response
        played.to_vendor |= _set_headers(common.header_mutation)
        mutation = common.body_mutation
        if stream.modes[0] == BUFFERED:
            played.request = mutation.body if common.HasField("body_mutation") else None
            if not trailers:
                return False
        else:
            played.request = (played.request or b"") + mutation.streamed_response.body
            if mutation.streamed_response.end_of_stream:
                return False
    raise AssertionError("the stream ended without the request")


async def _play_answer(stream: Playing, played: Played) -> None:
    while (reply := await stream.reply()) is not None:
        kind = reply.WhichOneof("response")
        if kind == "response_headers":
            _note_headers(reply, "response", played)
            continue
        if kind == "response_trailers":
            played.has_trailers = True
            return
        streamed = reply.response_body.response.body_mutation.streamed_response
        played.chunks.append(streamed.body)
        if streamed.end_of_stream:
            return
    raise AssertionError("the stream ended without the end of the answer")


def _note_headers(reply: Any, side: str, played: Played) -> None:
    assert reply.WhichOneof("response") == f"{side}_headers"
    mutation = getattr(reply, f"{side}_headers").response.header_mutation
    changed = played.to_vendor if side == "request" else played.to_client
    changed |= _set_headers(mutation)
    played.removed += mutation.remove_headers


def _set_headers(mutation: Any) -> dict[str, str]:
    return {one.header.key: one.header.raw_value.decode() for one in mutation.set_headers}
