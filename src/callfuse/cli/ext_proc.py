"""`callfuse ext-proc`: serve as an external processor of Envoy until a signal ends it, with the admin page over HTTP.

SIGTERM, after `drain_s`, and SIGINT make it stop listening, let open streams end within `shutdown_timeout_s`, and exit
with 0. From the signal on, health checks and the page's `ready` report that the process is not ready.
"""

import asyncio
import logging
import logging.config
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn

from callfuse import CallFuseMiddleware, __version__
from callfuse.admin import AdminApp
from callfuse.admin.app import AdminMount
from callfuse.admin.readiness import Readiness
from callfuse.asgi.fail_open import FailOpen
from callfuse.cli.greeting import admin_notice, base_url, mode_text, upstreams_of
from callfuse.cli.heap import settle_heap, trim_heap
from callfuse.cli.patience import PatientConfig
from callfuse.cli.reload import Origin, ReloadingApp
from callfuse.cli.serve import App, listener_or_none, log_config, say, uvicorn_options
from callfuse.cli.upkeep import Upkeep
from callfuse.config import Resolved
from callfuse.config.environment import ADMIN_TOKEN
from callfuse.config.serve import ServeSettings
from callfuse.dialects import error_body
from callfuse.envoy.app import EnvoyApp, can_ask
from callfuse.envoy.server import ExternalProcessor, lifespan, listening
from callfuse.observe.prometheus import Metrics, keep_in_memory
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.failures import NOT_FOUND, Failure
from callfuse.proxy.gate import FrontGate
from callfuse.proxy.refusing import Refusing

logger: Final = logging.getLogger("callfuse.envoy")

ENDS: Final = (signal.SIGINT, signal.SIGTERM)


def run(resolved: Resolved, origin: Origin | None, address: str, token: str | None = None) -> int:
    """Serve until a signal. Returns the exit code, 1 if it cannot listen on an address. `origin`: the sources for
    reloads, None for no reloads. `token`: that of the admin page; None generates and prints one."""
    config = resolved.config
    logging.config.dictConfig(log_config(config.serve))
    keep_in_memory()
    listener = None
    if config.admin.enabled and (listener := listener_or_none(config.serve)) is None:
        return 1
    try:
        asyncio.run(_serve(resolved, origin, address, listener, token))
    except OSError as error:
        print(f"callfuse: cannot listen on {address}: {error}; use another --listen", file=sys.stderr)
        return 1
    return 0


async def _serve(
    resolved: Resolved, origin: Origin | None, address: str, listener: socket.socket | None, token: str | None
) -> None:
    """Serve Envoy, and the admin page on `listener` if there is one. Raises OSError if it cannot listen on the
    address."""
    settings = resolved.config.serve
    vendor = EnvoyApp(settings, error_body)
    fuse = CallFuseMiddleware(vendor, resolved, via=True)
    app: App = ReloadingApp(fuse, vendor, resolved, origin) if origin else fuse
    processor = ExternalProcessor(app, FailOpen(fuse.bus))
    limit, grace_s = fuse.settings.max_request_bytes, settings.shutdown_timeout_s
    stops, used_token = [processor.stop], token or secrets.token_urlsafe()
    async with AsyncExitStack() as stack:
        if listener is None:
            await stack.enter_async_context(lifespan(app))
        else:
            metrics = Metrics()
            metrics.watch(fuse)
            page = AdminApp(fuse, token=used_token, metrics=metrics, readiness=Readiness(lambda: vendor.reachable))
            stops.append(page.stop)
            mount = AdminMount(_elsewhere(vendor, resolved.config.admin.path), page, resolved.config.admin)
            await stack.enter_async_context(lifespan(Upkeep(app, metrics)))
            await stack.enter_async_context(_serving(FrontGate(mount, vendor), settings, listener))
        bound = await stack.enter_async_context(listening(processor, address, most_body_bytes=limit, grace_s=grace_s))
        told: asyncio.Queue[int] = asyncio.Queue()
        for number in ENDS:
            asyncio.get_running_loop().add_signal_handler(number, told.put_nowait, number)
        settle_heap()
        trim_heap()
        _greet(resolved, bound)
        if listener is not None:
            _greet_page(resolved, listener.getsockname()[1], used_token, is_new=token is None)
        await _until_told(told, stops, settings.drain_s)
        logger.info("stopping: open streams have %g s to end", grace_s)


def _elsewhere(front: Refusing, page: str) -> App:
    """Make the app for every path outside the admin page."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await front.refuse(scope, send, Failure(NOT_FOUND, f"only the admin page is served here, at {page}/"))

    return refuse


@asynccontextmanager
async def _serving(app: App, settings: ServeSettings, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an app over HTTP around the block."""
    server = _PageServer(PatientConfig(lambda: app, **(uvicorn_options(settings) | {"lifespan": "off"})))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


class _PageServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the processor."""
        yield


async def _until_told(told: "asyncio.Queue[int]", stops: Iterable[Callable[[], None]], drain_s: float) -> None:
    """Wait for a stop signal. From then on, the process is not ready. After SIGTERM, it serves for `drain_s` more
    seconds, unless another signal comes."""
    number = await told.get()
    for stop in stops:
        stop()
    if number == signal.SIGTERM and drain_s:
        logger.info("draining: health checks fail, and requests are served for another %g s", drain_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await told.get()


def _greet(resolved: Resolved, address: str) -> None:
    serve, mode = resolved.config.serve, mode_text(resolved.config.tool_call_loop)
    asks = f", asks the model again at {upstreams_of(serve)}" if can_ask(serve) else ""
    logger.info("callfuse %s on %s guards for Envoy (%s)%s", __version__, address, mode, asks)
    if not asks:
        logger.info("no upstream: callfuse blocks a call instead of asking the model again; --upstream sets one")


def _greet_page(resolved: Resolved, port: int, token: str, *, is_new: bool) -> None:
    config = resolved.config
    if is_new:
        say(config.serve, admin_notice(config, port, token))
    else:
        logger.info(
            "admin page: %s%s/ with the token of %s", base_url(config.serve, port), config.admin.path, ADMIN_TOKEN
        )
