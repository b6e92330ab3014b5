"""`callfuse serve`: serve the guarded reverse proxy with a resolved configuration until a signal ends it.

uvicorn adds no headers to an answer: `server` and `date` are the upstream's own. SIGTERM, after `drain_s`, and SIGINT
make it stop listening, let open streams end within `shutdown_timeout_s`, and exit with 0.

Logs are one line per record on stderr, as text or JSON: callfuse at the chosen level, everything else from WARNING on.
Queries of requests are not logged, because some vendors accept keys there.
"""

import inspect
import json
import logging
import math
import os
import secrets
import signal
import socket
import sys
import tempfile
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from callfuse import CallFuseMiddleware
from callfuse.admin import AdminApp
from callfuse.admin.app import AdminMount
from callfuse.admin.readiness import Readiness
from callfuse.cli.drain import Drain
from callfuse.cli.greeting import admin_notice, greeting, hints
from callfuse.cli.heap import settle_heap, trim_heap
from callfuse.cli.patience import PatientConfig
from callfuse.cli.reload import HANGUP, Origin, ReloadingApp
from callfuse.cli.upkeep import Upkeep
from callfuse.cli.workers import FAILED_START, Workers
from callfuse.config import Config, Resolved
from callfuse.config.serve import ServeSettings
from callfuse.dialects import error_body
from callfuse.observe.access import ACCESS
from callfuse.observe.bus import Sink
from callfuse.observe.events import WorkerReplaced
from callfuse.observe.json_lines import JsonFormatter, JsonHandler
from callfuse.observe.prometheus import FOLDER, Metrics, keep_in_memory, take_place
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.gate import CrossSiteGate, FrontGate

logger = logging.getLogger("callfuse.serve")

WORKER_CONFIG = "_CALLFUSE_WORKER_CONFIG"
"""The environment variable with which the parent passes its `ServeSetup` to workers."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Clients keep idle connections for seconds to minutes. If the server closes first, a reuse may sometimes fail.
KEEP_ALIVE_S = 75  # nginx's default
BACKLOG = 2048  # uvicorn's default

LOG_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class ServeSetup:
    """The data that a process needs to serve: settings, their origin for reloads, and the token of the admin page."""

    resolved: Resolved
    origin: Origin | None
    token: str


def build_app(setup: ServeSetup, *sinks: Sink, replaces: bool = False) -> App:
    """Build the app to serve: the proxy behind the middleware, with reloads if there is an origin, the admin page if it
    is enabled, and the gates in front. `sinks` get all events. `replaces`: this process replaces a worker that died."""
    config, origin = setup.resolved.config, setup.origin
    proxy = ReverseProxy(config.serve, error_body)
    fuse = CallFuseMiddleware(proxy, setup.resolved, via=True)
    for sink in sinks:
        fuse.bus.add(sink)
    app = CrossSiteGate(ReloadingApp(fuse, proxy, setup.resolved, origin) if origin else fuse, proxy)
    if not config.admin.enabled:
        return Drain(FrontGate(app, proxy), config.serve.drain_s, _nothing)
    metrics, readiness = Metrics(), Readiness(lambda: proxy.reachable)
    metrics.watch(fuse)
    if replaces:
        fuse.bus.emit(WorkerReplaced())
    page = AdminApp(fuse, token=setup.token, metrics=metrics, readiness=readiness)
    gate = FrontGate(AdminMount(Upkeep(app, metrics), page, config.admin), proxy)
    return Drain(gate, config.serve.drain_s, page.stop)


def _nothing() -> None:
    """Do nothing: without the admin page there is no endpoint `ready`."""


def create_app() -> App:
    """Build the app of a worker process from its parent's setup."""
    place = take_place(os.environ[FOLDER])
    settle_heap()
    trim_heap()
    return build_app(decode_setup(os.environ[WORKER_CONFIG]), replaces=place.replaces)


def encode_setup(setup: ServeSetup) -> str:
    """Encode a setup as JSON. Unset settings are left out, so that they keep their defaults."""
    resolved, origin = setup.resolved, setup.origin
    data = {
        "config": resolved.config.model_dump(mode="json", exclude_unset=True),
        "sources": list(resolved.sources.items()),
        "origin": asdict(origin) if origin else None,
        "token": setup.token,
    }
    return json.dumps(data)


def decode_setup(text: str) -> ServeSetup:
    """Decode the result of `encode_setup`."""
    data = json.loads(text)
    sources = {tuple(path): source for path, source in data["sources"]}
    resolved = Resolved(Config.model_validate(data["config"]), sources)
    return ServeSetup(resolved, Origin(**data["origin"]) if data["origin"] else None, data["token"])


def run(resolved: Resolved, origin: Origin | None = None, token: str | None = None) -> int:
    """Serve until a signal. Returns the exit code, 1 if it cannot listen on the address, or no worker starts.

    `origin`: the sources for reloads, None for no reloads. `token`: that of the admin page; None generates and prints
    one.
    """
    config = resolved.config
    settings = config.serve
    setup = ServeSetup(resolved, origin, token or secrets.token_urlsafe())
    keep_in_memory()
    app = build_app(setup)
    settle_heap()
    trim_heap()
    listener = listener_or_none(settings)
    if listener is None:
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    if origin and HANGUP is not None:
        signal.signal(HANGUP, signal.SIG_IGN)  # until a handler is set: the settings have just been read
    with listener:
        port = listener.getsockname()[1]

        def greet() -> None:
            say(settings, greeting(config, port))
            if config.admin.enabled and not token:
                say(settings, admin_notice(config, port, setup.token))
            for line in hints(config, port, has_token=bool(token)):
                say(settings, line)

        if settings.workers == 1:
            server = _Server(PatientConfig(lambda: app, **uvicorn_options(settings)), greet)
            server.run(sockets=[listener])
            return 0 if server.started else FAILED_START
        os.environ[WORKER_CONFIG] = encode_setup(setup)
        with tempfile.TemporaryDirectory(prefix="callfuse-metrics-", ignore_cleanup_errors=True) as folder:
            os.environ[FOLDER] = folder
            return _run_workers(settings, listener, greet)


def say(settings: ServeSettings, line: str) -> None:
    """Print a line at the start, in the format of the log, because log collectors read all of stderr."""
    if settings.log_format == "json":
        line = JsonFormatter().format(logging.LogRecord(logger.name, logging.INFO, "", 0, line.strip(), None, None))
    print(line, file=sys.stderr, flush=True)


def _run_workers(settings: ServeSettings, listener: socket.socket, greet: Callable[[], None]) -> int:
    """Serve with several processes until a signal. Returns the exit code."""
    workers = PatientConfig(f"{__name__}:{create_app.__name__}", **uvicorn_options(settings))
    # Older releases of uvicorn need the worker's target function.
    tell = "target" in inspect.signature(Multiprocess).parameters
    target = {"target": uvicorn.Server(workers).run} if tell else {}
    supervisor = Workers(workers, [listener], greet, **target)
    supervisor.run()
    return supervisor.exit_code


def listener_or_none(settings: ServeSettings) -> socket.socket | None:
    """Open the listening socket. If that fails, print why and return None."""
    try:
        return open_listener(settings)
    except OSError as error:
        # Python appends the address to the system's message.
        why = (error.strerror or str(error)).partition(" (while")[0]
        advice = "use another --port (0 for a free one) or --host; callfuse doctor shows which process has the port"
        print(f"callfuse: cannot listen on {settings.host}, port {settings.port}: {why}; {advice}", file=sys.stderr)
        return None


def open_listener(settings: ServeSettings) -> socket.socket:
    """Open the listening socket, which queues connections from now on. Raises OSError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    both = settings.host == "::" and socket.has_dualstack_ipv6()
    address = (settings.host, settings.port)
    listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    # asyncio sets this only on its own sockets; without it, streamed chunks wait for ACKs (Nagle).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def uvicorn_options(settings: ServeSettings) -> dict[str, Any]:
    """Return the options of uvicorn for these settings."""
    return {
        "factory": True,
        "interface": "asgi3",
        "lifespan": "on",
        "host": settings.host,
        "workers": settings.workers,
        "backlog": BACKLOG,
        # A WebSocket upgrade reaches the proxy as a plain HTTP request, and is answered as one.
        "ws": "none",
        "settings": settings,
        "server_header": False,
        "date_header": False,
        # Nothing depends on the client's address, so no forwarded header must be trusted.
        "proxy_headers": False,
        "access_log": settings.log_level == "debug",
        "log_config": log_config(settings),
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": math.ceil(settings.shutdown_timeout_s),
    }


def _end(*_: object) -> None:
    """Exit with 0, on signals before uvicorn handles them, and on signals that it raises again after its shutdown."""
    raise SystemExit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print a line once it serves."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Log the time limit first. On a second Ctrl+C, uvicorn stops at once."""
        limit = self.config.timeout_graceful_shutdown
        logger.info("stopping: open streams have %s s to end; Ctrl+C ends them now", limit)
        await super().shutdown(sockets)


class QueryFilter(logging.Filter):
    """Cuts the query from uvicorn's access lines, whose arguments are address, method, path, version and status."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, and cut its path at the question mark."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            address, method, path, version, status = record.args
            record.args = (address, method, str(path).partition("?")[0], version, status)
        return True


class NoiseFilter(logging.Filter):
    """Drops records of uvicorn about intended behaviour.

    These are the advice to install a WebSocket library, because callfuse answers upgrades over HTTP on purpose, and the
    traceback of each stream that is cut after `shutdown_timeout_s`, because a line at the shutdown announces that.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to keep a record."""
        cut = record.exc_info is not None and isinstance(record.exc_info[1], CancelledError)
        advice = str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))
        return not (cut or advice)


def log_config(settings: ServeSettings) -> dict[str, Any]:
    """Make the `logging` configuration; at debug level, with uvicorn's own steps and each request."""
    detail = "INFO" if settings.log_level == "debug" else "WARNING"
    own = own_log_config(settings)
    loggers = {name: {"level": one["level"]} for name, one in own["loggers"].items()}
    return own | {
        "filters": {
            "without_query": {"()": QueryFilter},
            "without_noise": {"()": NoiseFilter},
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            **loggers,
            "uvicorn.error": {"level": detail, "filters": ["without_noise"]},
            "uvicorn.access": {"level": detail, "filters": ["without_query"]},
        },
    }


def own_log_config(settings: ServeSettings) -> dict[str, Any]:
    """Make the `logging` configuration of callfuse only, for use in another server."""
    level = settings.log_level.upper()
    is_json = settings.log_format == "json"
    line = {"()": JsonFormatter} if is_json else {"format": LOG_LINE}
    handler = {"()": JsonHandler} if is_json else {"class": "logging.StreamHandler"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": line},
        "handlers": {"stderr": handler | {"formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {
            "callfuse": {"level": level, "handlers": ["stderr"], "propagate": False},
            ACCESS: {"level": level if settings.access_log else "WARNING"},
        },
    }
