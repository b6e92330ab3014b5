"""`callfuse serve`: serve the guarded reverse proxy with a resolved configuration until a signal ends it.

uvicorn adds no header to an answer: `server` and `date` are the upstream's own. SIGTERM and SIGINT stop listening at
once, let open streams end within `shutdown_timeout_s`, and exit with 0.

Logs are one line a record on stderr: callfuse at the chosen level, everything else from WARNING on. No query of a
request is logged: some vendors take their key there.
"""

import gc
import inspect
import json
import logging
import math
import os
import secrets
import signal
import socket
import sys
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from callfuse import CallFuseMiddleware, __version__
from callfuse.admin import AdminApp
from callfuse.admin.app import Beside
from callfuse.cli.reload import HANGUP, Origin, Reloading
from callfuse.config import Config, Resolved, without_credentials
from callfuse.config.environment import ADMIN_TOKEN
from callfuse.dialects import error_body
from callfuse.policy.settings import MODES, LoopSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.settings import ServeSettings

logger = logging.getLogger("callfuse.serve")

WORKER_CONFIG = "_CALLFUSE_WORKER_CONFIG"
"""The environment variable with which a parent passes what is `Settled` to its workers."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Clients keep idle connections for seconds to minutes. Where the server closes first, one in many reuses fails.
KEEP_ALIVE_S = 75
BACKLOG = 2048
COLLECTED_AFTER = 50_000
"""New objects until the next run of the cyclic garbage collector."""

LOG_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known before the start: the settings, where to read them again, the token of the admin page."""

    resolved: Resolved
    origin: Origin | None
    token: str


def build_app(settled: Settled) -> App:
    """Build the app that is served: the proxy behind the middleware, with settings that follow their file, and the
    admin page."""
    config, origin = settled.resolved.config, settled.origin
    proxy = ReverseProxy(config.serve, error_body)
    fuse = CallFuseMiddleware(proxy, settled.resolved)
    app = Reloading(fuse, proxy, settled.resolved, origin) if origin else fuse
    return Beside(app, AdminApp(fuse, token=settled.token), config.admin) if config.admin.enabled else app


def calm_collector() -> None:
    """Run the cyclic garbage collector less often, and not over the objects of the start.

    A request makes hundreds of short-lived objects, hardly any of them in a cycle: by default every other request pays
    for a search that finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER, 20, 20)


def create_app() -> App:
    """Build the app of a worker process from what its parent passed."""
    calm_collector()
    return build_app(from_parent(os.environ[WORKER_CONFIG]))


def to_worker(settled: Settled) -> str:
    """Write what is settled as JSON. Settings that nobody has set are left out, and so stay defaults."""
    resolved, origin = settled.resolved, settled.origin
    given = {
        "config": resolved.config.model_dump(mode="json", exclude_unset=True),
        "sources": list(resolved.sources.items()),
        "origin": asdict(origin) if origin else None,
        "token": settled.token,
    }
    return json.dumps(given)


def from_parent(text: str) -> Settled:
    """Read what `to_worker` wrote."""
    given = json.loads(text)
    sources = {tuple(path): source for path, source in given["sources"]}
    resolved = Resolved(Config.model_validate(given["config"]), sources)
    return Settled(resolved, Origin(**given["origin"]) if given["origin"] else None, given["token"])


def run(resolved: Resolved, origin: Origin | None = None, token: str | None = None) -> int:
    """Serve until a signal comes; returns the exit code, 1 if the address cannot be listened on.

    `origin` is where the settings are read again, None for never. `token` is that of the admin page; without one, a new
    one is printed.
    """
    config = resolved.config
    settings = config.serve
    settled = Settled(resolved, origin, token or secrets.token_urlsafe())
    app = build_app(settled)
    calm_collector()
    try:
        listener = _listener(settings)
    except OSError as error:
        # Python adds the address to what the system says; names that are not found have numbers of their own.
        why = (error.strerror or str(error)).partition(" (while")[0]
        print(f"callfuse: cannot listen on {settings.host}, port {settings.port}: {why}", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    if origin and HANGUP is not None:
        signal.signal(HANGUP, signal.SIG_IGN)  # until someone listens; what it could say has just been read
    with listener:
        port = listener.getsockname()[1]
        print(greeting(config, port), file=sys.stderr, flush=True)
        if config.admin.enabled and not token:
            print(invitation(config, port, settled.token), file=sys.stderr, flush=True)
        if settings.workers == 1:
            _Server(uvicorn.Config(lambda: app, **_uvicorn_options(settings))).run(sockets=[listener])
        else:
            os.environ[WORKER_CONFIG] = to_worker(settled)
            _run_workers(settings, listener)
    return 0


def _run_workers(settings: ServeSettings, listener: socket.socket) -> None:
    workers = uvicorn.Config(f"{__name__}:{create_app.__name__}", **_uvicorn_options(settings))
    # Older releases of uvicorn want to be told what a worker runs.
    tell = "target" in inspect.signature(Multiprocess).parameters
    target = {"target": uvicorn.Server(workers).run} if tell else {}
    _Workers(workers, sockets=[listener], **target).run()


def greeting(config: Config, port: int) -> str:
    """One line that says where callfuse listens and what it guards."""
    serve = config.serve
    upstreams = [serve.upstream] if serve.upstream else []
    upstreams += [f"{route.path} -> {route.upstream}" for route in serve.routes]
    guarded = ", ".join(map(without_credentials, upstreams))
    return f"callfuse {__version__} on {_base_url(serve, port)} guards {guarded} ({_fuse(config.tool_call_loop)})"


def invitation(config: Config, port: int, token: str) -> str:
    """One line that says where the admin page is, and the token that was made for it."""
    page = f"{_base_url(config.serve, port)}{config.admin.path}/"
    return f"callfuse admin page: {page} with the token {token} (of this start; {ADMIN_TOKEN} sets one)"


def _base_url(serve: ServeSettings, port: int) -> str:
    host = f"[{serve.host}]" if ":" in serve.host else serve.host
    return f"http://{host}:{port}"


def _fuse(settings: LoopSettings) -> str:
    if not settings.enabled:
        return "off: tool_call_loop.enabled is false"
    names = (name for name, ladder in MODES.items() if ladder == settings.ladder)
    return f"mode={next(names, ', '.join(settings.ladder))}, max_repeats={settings.max_repeats}"


def _listener(settings: ServeSettings) -> socket.socket:
    """Open the listening socket; connections queue in it from now on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    both = settings.host == "::" and socket.has_dualstack_ipv6()
    address = (settings.host, settings.port)
    listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    # asyncio sets this only on sockets that it has made itself; without it every streamed chunk waits for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _uvicorn_options(settings: ServeSettings) -> dict[str, Any]:
    return {
        "factory": True,
        "interface": "asgi3",
        "lifespan": "on",
        "host": settings.host,
        "workers": settings.workers,
        "backlog": BACKLOG,
        # A WebSocket upgrade arrives as the HTTP request that it is, and is answered as one.
        "ws": "none",
        "server_header": False,
        "date_header": False,
        # Nothing here depends on the client's address, so nobody's word about it need be trusted.
        "proxy_headers": False,
        "access_log": settings.log_level == "debug",
        "log_config": log_config(settings.log_level),
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": math.ceil(settings.shutdown_timeout_s),
    }


def _end(*_: object) -> None:
    """Exit with 0: for signals before uvicorn handles them, and for those that it raises again at its end."""
    raise SystemExit(0)


class _Workers(Multiprocess):
    def handle_hup(self) -> None:
        """Have each worker read its settings again, where uvicorn would restart all of them."""
        for worker in self.processes:
            if worker.pid is not None and HANGUP is not None:
                os.kill(worker.pid, HANGUP)


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Log how long it may take; on a second Ctrl+C uvicorn stops at once."""
        limit = self.config.timeout_graceful_shutdown
        logger.info("stopping: open streams have %s s to end, Ctrl+C cuts them", limit)
        await super().shutdown(sockets)


class WithoutQuery(logging.Filter):
    """Cuts the query from uvicorn's access lines; their arguments are address, method, path, version and status."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, with its path as far as the question mark."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            address, method, path, version, status = record.args
            record.args = (address, method, str(path).partition("?")[0], version, status)
        return True


class WithoutNoise(logging.Filter):
    """Drops what uvicorn logs about things that are as they should be.

    That is its advice to install a WebSocket library, where callfuse answers such requests over HTTP on purpose, and
    the traceback of each stream that is cut at the end of `shutdown_timeout_s`, which a line of its own announces.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every other record."""
        cut = record.exc_info is not None and isinstance(record.exc_info[1], CancelledError)
        advice = str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))
        return not (cut or advice)


def log_config(level: str) -> dict[str, Any]:
    """The configuration for a `log_level`; at debug uvicorn's own steps and each request are logged as well."""
    detail = "INFO" if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": LOG_LINE}},
        "filters": {
            "without_query": {"()": WithoutQuery},
            "without_noise": {"()": WithoutNoise},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "callfuse": {"level": level.upper()},
            "uvicorn.error": {"level": detail, "filters": ["without_noise"]},
            "uvicorn.access": {"level": detail, "filters": ["without_query"]},
        },
    }
