"""`callfuse run -- COMMAND`: run a command behind its own guard.

The guard listens on a free port of this machine while the command runs, at a secret path: base URLs may contain
credentials, which it adds to forwarded requests, and any user of the machine, and any page in a browser, can reach a
port. The command has this process's terminal and its standard streams. Findings are reported on stderr at the end.
Nothing is logged there before, because the command may draw on the whole screen.

The exit code is the command's, 128 plus the signal's number if a signal ended it, or 3 if it ended by itself after a
block in the last exchange of a session. 127: the command is not found, 126: it cannot be run. 2: wrong settings.
"""

import logging
import logging.config
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

import uvicorn

from callfuse.asgi.types import Receive, Scope, Send
from callfuse.cli.account import Account
from callfuse.cli.agents import VENDORS, Wiring, wire, with_version
from callfuse.cli.patience import PatientConfig
from callfuse.cli.runs import fail
from callfuse.cli.serve import App, ServeSetup, build_app, log_config, open_listener, uvicorn_options
from callfuse.config import Resolved, resolve, without_credentials
from callfuse.config.serve import Route, ServeSettings
from callfuse.errors import ConfigError
from callfuse.stores import require

COMMAND: Final = "run"
BLOCKED: Final = 3
NOT_FOUND: Final = 127
NOT_RUNNABLE: Final = 126
BY_SIGNAL: Final = 128
LOCAL: Final = "127.0.0.1"
PLACE_BYTES: Final = 12
"""The number of random bytes in the path."""
CLOSE_S: Final = 2.0
"""How long streams that the command left open may continue."""
POLL_S: Final = 0.01
PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that are passed to the command."""
OF_THE_TERMINAL: Final = ("SIGINT", "SIGQUIT")
"""Signals that a terminal also sends to the command, if it is in the foreground."""


class GuardFailed(Exception):
    """Raised if the guard does not start."""

    def __str__(self) -> str:
        """Return the message for the user."""
        return "the guard does not start; `callfuse doctor` checks its settings, --log FILE shows more"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options in addition to the command. `log`: a file to which the guard logs."""

    upstream: str | None = None
    config: Path | None = None
    store: str | None = None
    log: Path | None = None


def run_command_guarded(command: Sequence[str], options: RunOptions) -> int:
    """Run the command behind a guard. Returns the exit code."""
    try:
        resolved, wiring = _settings(options, os.environ)
        place = f"/{token_urlsafe(PLACE_BYTES)}"
        app, account = _app(resolved, place)
        _log_to(options.log, resolved.config.serve)
        with _listening(app, resolved.config.serve) as origin:
            guard = origin + place
            env = {**os.environ, **wiring.variables(guard, os.environ)}
            with wiring.command(command, guard, env) as led:
                try:
                    code = run_process(led, env)
                except OSError as error:
                    fail(COMMAND, f"{command[0]}: {error.strerror}")
                    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
    except (ConfigError, GuardFailed, OSError) as error:
        return fail(COMMAND, str(error))
    if sys.stderr is not None:  # if it is closed, `print` would use stdout
        with suppress(OSError):  # the reader may have closed it
            _tell(account, wiring, guard)
    return BLOCKED if account.ended and code < BY_SIGNAL else code


def _settings(options: RunOptions, env: Mapping[str, str]) -> tuple[Resolved, Wiring]:
    """Return the guard's configuration: that of `callfuse serve`, on a free port, with a route for each vendor; and its
    wiring. Raises ConfigError."""
    resolved = resolve(options.config, options={"store": options.store, "serve": {"upstream": options.upstream}})
    config = resolved.config
    require(config.store)
    wiring = wire(env, config.serve.upstream)
    routes = []
    for path, upstream in wiring.routes.items():
        try:
            routes.append(Route(path=path, upstream=upstream))
        except ValueError:
            raise ConfigError(f"the base URL of {path[1:]}, {without_credentials(upstream)}, cannot be used") from None
    own = {"host": LOCAL, "port": 0, "workers": 1, "routes": tuple(routes)}
    own |= {"tls_certificate": None, "tls_key": None, "drain_s": 0, "shutdown_timeout_s": CLOSE_S}
    serve = config.serve.model_copy(update=own)
    admin = config.admin.model_copy(update={"enabled": False})  # its port is not known to users
    return replace(resolved, config=config.model_copy(update={"serve": serve, "admin": admin})), wiring


def _app(resolved: Resolved, place: str) -> tuple[App, Account]:
    """Return the guard, which serves everything below the path `place`, and its account. Raises ConfigError."""
    account = Account()
    app = build_app(ServeSetup(resolved, None, token=""), account)
    front = place.encode()

    async def placed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            given, raw = scope["path"].encode(), scope["raw_path"]
            if not (compare_digest(given[: len(front)], front) and raw.startswith(front)):
                await _refuse(scope, send)
                return
            path, raw = scope["path"].removeprefix(place), raw.removeprefix(front)
            if (versioned := with_version(path)) != path:
                path, raw = versioned, versioned.encode()
            scope = {**scope, "path": path, "raw_path": raw}
        await app(scope, receive, send)

    return placed, account


async def _refuse(scope: Scope, send: Send) -> None:
    """Answer a request to the port without the secret path."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "websocket.close"})


def _log_to(file: Path | None, settings: ServeSettings) -> None:
    """Log to a file, or not at all. Raises ConfigError."""
    config: dict[str, Any] = log_config(settings)
    if file is None:
        handler: dict[str, Any] = {"class": "logging.NullHandler"}
    else:
        try:
            file.open("a", encoding="utf-8").close()
        except OSError as error:
            raise ConfigError(f"--log {file}: cannot be written: {error.strerror}") from None
        handler = {"class": "logging.FileHandler", "filename": str(file), "encoding": "utf-8", "formatter": "line"}
    logging.config.dictConfig(config | {"handlers": {"stderr": handler}})


@contextmanager
def _listening(app: App, settings: ServeSettings) -> Iterator[str]:
    """Serve the app in a thread, and yield its address. At the end, open streams are closed, and all events were
    emitted. Raises OSError and GuardFailed."""
    options = uvicorn_options(settings) | {"log_config": None}
    server = uvicorn.Server(PatientConfig(lambda: app, **options))
    with open_listener(settings) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="callfuse-run", daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise GuardFailed
                time.sleep(POLL_S)
            yield f"http://{LOCAL}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(4 * CLOSE_S)


def run_process(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command with the streams of this process, and pass signals on to it. Returns its status, as a shell reports
    it. Raises OSError if it cannot be run."""
    with _Signals() as signals, subprocess.Popen(command, env=env) as process:  # noqa: S603 - what the user has typed
        signals.to(process)
        code = process.wait()
    return code if code >= 0 else BY_SIGNAL - code


class _Signals:
    """Passes signals on to a process during a `with` block. Signals before the process exists are passed once it
    does."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        """Set handlers for the signals. Not SIG_IGN, because the process would inherit it."""
        for name in (*PASSED_ON, *OF_THE_TERMINAL):
            if number := getattr(signal, name, None):
                self._before[number] = signal.signal(number, self._pass)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the old handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def to(self, process: subprocess.Popen[bytes]) -> None:
        """Pass signals to this process from now on."""
        self._process = process
        for number in self._early:
            process.send_signal(number)

    def _pass(self, number: int, _: object) -> None:
        if signal.Signals(number).name in OF_THE_TERMINAL and _is_in_foreground():
            return
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to this process and so, because they share a process group, to the
    command."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return os.name == "nt"
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _tell(account: Account, wiring: Wiring, guard: str) -> None:
    """Print the report on stderr."""
    lines = [*account.lines()]
    if account.is_empty:
        lines = ["the command did not use a model through callfuse. It got these variables:"]
        for vendor in VENDORS:
            name = vendor.variables[0]
            upstream = without_credentials(wiring.routes[vendor.route])
            lines.append(f"  {name}={guard}{wiring.paths[name]} for {upstream}")
        lines.append("  Its own settings may override these; `docs/agents.md` lists more variables")
    for line in lines:
        print(f"callfuse: {line}" if line[0] != " " else f"callfuse:{line}", file=sys.stderr)
