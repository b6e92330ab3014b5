"""Reload the settings while `callfuse serve` or `ext-proc` runs: on SIGHUP, and when their file has changed.

Valid settings apply to exchanges from then on. Wrong ones are refused with an error in the log, and the old ones stay.
Every worker process does this by itself.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.boundary import Boundary
from callfuse.config import Config, Resolved, resolve
from callfuse.config.model import KeyPath, differences, dotted_name
from callfuse.config.serve import ServeSettings
from callfuse.proxy.asgi import Receive, Scope, Send

logger = logging.getLogger("callfuse.serve")

POLL_S = 2.0
"""Seconds between two checks of the file."""

FIXED: Final = frozenset(
    {
        ("tool_call_loop", "max_sessions"),
        ("tool_call_loop", "max_ledger_bytes"),
        *(("serve", key) for key in ("host", "port", "workers", "log_level", "log_format", "access_log")),
        *(("serve", key) for key in ("drain_s", "shutdown_timeout_s", "tls_certificate", "tls_key")),
    }
)
"""Keys that cannot change while serving."""
RELOADED: Final = ("tool_call_loop", "serve")
"""The blocks whose other keys can change while serving."""

HANGUP: Final = getattr(signal, "SIGHUP", None)
"""The signal; None on Windows, which has no SIGHUP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The sources of the settings: a file with its version, and command-line options. The environment never changes."""

    file: str
    options: Mapping[str, object]
    version: str | None

    @classmethod
    def of(cls, file: str | None, options: Mapping[str, object]) -> "Origin | None":
        """Make the origin of settings; None if there is no file to watch."""
        return cls(file, options, file_version(file)) if file else None

    def resolve(self) -> Resolved:
        """Load the current settings. Raises ConfigError."""
        return resolve(self.file, options=self.options)


def file_version(file: str) -> str | None:
    """Modification time, size and inode number of a file as one text; None if the file cannot be read."""
    with suppress(OSError):
        found = os.stat(os.path.expanduser(file))  # noqa: PTH116, PTH111 - avoids making a Path every 2 s
        return f"{found.st_mtime_ns} {found.st_size} {found.st_ino}"
    return None


class Configurable(Protocol):
    """The app behind the middleware, which has upstreams."""

    def configure(self, settings: ServeSettings) -> None:
        """Use these settings from now on. Raises ConfigError for wrong ones."""
        ...


class ReloadingApp:
    """Wraps the guarded app, and reloads its settings when their file changes, during its lifespan."""

    def __init__(self, app: CallFuseMiddleware, proxy: Configurable, resolved: Resolved, origin: Origin) -> None:
        self._app = app
        self._proxy = proxy
        self._start = resolved
        self._config = resolved.config
        self._origin = origin
        self._version = origin.version
        self._is_refused = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        return (self._run_lifespan if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        watching = loop.create_task(self._watch())
        if HANGUP is not None:
            loop.add_signal_handler(HANGUP, self.reload)
        try:
            await self._app(scope, receive, send)
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            if file_version(self._origin.file) not in (None, self._version):
                self.reload()
            await asyncio.sleep(POLL_S)

    def reload(self) -> None:
        """Load the settings again, and use them if they are valid."""
        self._version = file_version(self._origin.file)  # before reading, so that a change meanwhile is seen
        with Boundary(keep_traceback=True) as boundary:  # the server must continue, and check the file again
            resolved = self._origin.resolve()
            config = resolved.config
            kept = keep_fixed(resolved, self._start)
            self._proxy.configure(kept.config.serve)
            self._app.configure(kept)
        was_refused, self._is_refused = self._is_refused, boundary.error is not None
        if boundary.error is not None:
            self._log_refusal(boundary.error)
            return
        if was_refused:
            logger.info("%s is valid again; its settings are in effect", self._origin.file)
        changed, self._config = list(differences(self._config, config)), config
        now = [path for path in changed if not _is_fixed(path)]
        logger.info("reloaded %s; changed: %s", self._origin.file, _join(now) or "nothing")
        if later := [path for path in changed if _is_fixed(path)]:
            logger.warning("restart to change: %s", _join(later))

    def _log_refusal(self, error: Exception) -> None:
        what = "%s has errors, the settings stay as they are"
        if isinstance(error, ConfigError):
            wrong = "\n".join(f"  {line}" for line in str(error).splitlines())
            logger.error(f"{what}:\n%s", self._origin.file, wrong)
        else:
            logger.error(what, self._origin.file, exc_info=error)


def keep_fixed(read: Resolved, start: Resolved) -> Resolved:
    """Combine the fixed keys of the settings at the start with all other keys of the settings read now."""
    either = {block: read.config if block in RELOADED else start.config for block in Config.model_fields}
    blocks = {block: getattr(config, block) for block, config in either.items()}
    for block, key in FIXED:
        before = getattr(getattr(start.config, block), key)
        blocks[block] = blocks[block].model_copy(update={key: before})
    sources = {path: source for path, source in read.sources.items() if not _is_fixed(path)}
    sources |= {path: source for path, source in start.sources.items() if _is_fixed(path)}
    return Resolved(read.config.model_copy(update=blocks), sources)


def _is_fixed(path: KeyPath) -> bool:
    return path in FIXED or path[0] not in RELOADED


def _join(paths: list[KeyPath]) -> str:
    return ", ".join(map(dotted_name, paths))
