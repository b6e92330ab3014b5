"""Serve the gRPC calls of Envoy, with one stream for each HTTP request.

After an error of callfuse, the rest of an exchange passes unchanged. Exchanges that cannot be guarded, because Envoy
does not send the required messages, pass, too, which is reported once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc
import grpc.aio
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.types import ASGIApp, Message, Scope
from callfuse.envoy import messages
from callfuse.envoy.channel import StreamOverError, Write
from callfuse.envoy.exchange import EnvoyExchange

logger: Final = logging.getLogger("callfuse.envoy")

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
SERVING: Final = b"\x08\x01"
"""A `HealthCheckResponse` with the status SERVING."""
NOT_SERVING: Final = b"\x08\x02"
"""A `HealthCheckResponse` with the status NOT_SERVING."""
USUAL_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # gRPC's default
LAST_S: Final = 5.0
BESIDE_BODY_BYTES: Final = 1024 * 1024  # headers and attributes; Envoy allows 60 KiB by default


class ExternalProcessor:
    """Serves Envoy's streams with `app`, the middleware around an `EnvoyApp`. `fail_open` reports errors."""

    def __init__(self, app: ASGIApp, fail_open: FailOpen) -> None:
        self._app = app
        self._fail_open = fail_open
        self._running: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._is_stopping = False

    async def process(self, _requests: Any, context: Any) -> None:
        """Serve one stream."""
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        write = _writer(context)
        if unguardable := messages.why_unguardable(first):
            self._tell(unguardable)
            with suppress(StreamOverError):
                await _pass_all(first, context, write)
            return
        exchange = EnvoyExchange(first, write)
        running = asyncio.create_task(self._run(exchange))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            with suppress(StreamOverError):
                while (message := await context.read()) is not grpc.aio.EOF:
                    await exchange.take(message)
        finally:  # also if Envoy cancels the stream: the middleware gets a disconnect, and may end later
            exchange.end()
        await running

    def stop(self) -> None:
        """Make health checks report from now on that the process stops. It serves as before."""
        self._is_stopping = True

    async def check_health(self, _request: bytes, _context: Any) -> bytes:
        """Answer a health check."""
        return NOT_SERVING if self._is_stopping else SERVING

    async def finish(self) -> None:
        """Wait a short time for all exchanges to end, because their streams are over."""
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_S)

    async def _run(self, exchange: EnvoyExchange) -> None:
        try:
            stage = self._fail_open.stage("in a stream of Envoy")
            with stage:
                await exchange.serve(self._app)
            if stage.failed:
                await exchange.pass_unguarded()
        except StreamOverError:
            exchange.end()

    def _tell(self, unguardable: str) -> None:
        if unguardable not in self._told:
            self._told.add(unguardable)
            logger.warning("requests pass without a guard: %s", unguardable)


async def _pass_all(message: Any, context: Any, write: Write) -> None:
    """Forward everything in a stream unchanged."""
    modes = messages.modes_of(message)
    while message is not grpc.aio.EOF:
        for reply in messages.unchanged(message, modes):
            await write(reply)
        message = await context.read()


def _writer(context: Any) -> Write:
    async def write(reply: Any) -> None:
        try:
            await context.write(reply)
        except grpc.aio.BaseError:
            raise StreamOverError from None

    return write


@asynccontextmanager
async def listening(
    processor: ExternalProcessor, address: str, *, most_body_bytes: int, grace_s: float
) -> AsyncIterator[str]:
    """Listen on an address, `unix:PATH` or `HOST:PORT`, and yield the bound one: port 0 means any free port. Raises
    OSError if it cannot be bound. At the end, open streams have `grace_s` seconds to end."""
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max(USUAL_MESSAGE_BYTES, most_body_bytes + BESIDE_BODY_BYTES)),
        ("grpc.max_send_message_length", -1),
    ]
    server = grpc.aio.server(options=options)
    process = grpc.stream_stream_rpc_method_handler(
        processor.process, ext_proc.ProcessingRequest.FromString, ext_proc.ProcessingResponse.SerializeToString
    )
    check = grpc.unary_unary_rpc_method_handler(processor.check_health)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(SERVICE, {"Process": process}),
            grpc.method_handlers_generic_handler(HEALTH_SERVICE, {"Check": check}),
        )
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    try:
        yield address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(grace_s)
        await processor.finish()


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Run the lifespan of an app around the block."""
    said: asyncio.Queue[Message] = asyncio.Queue()
    asked: asyncio.Queue[Message] = asyncio.Queue()
    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    running = asyncio.ensure_future(app(scope, asked.get, said.put))
    try:
        asked.put_nowait({"type": "lifespan.startup"})
        await said.get()
        yield
    finally:
        asked.put_nowait({"type": "lifespan.shutdown"})
        await running
