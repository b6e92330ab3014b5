"""Reload the settings while `callfuse serve` runs: on SIGHUP, and when their file has changed.

Valid settings hold for the exchanges that begin from then on; wrong ones are refused with an error in the log, and the
old ones stay. Every worker process does this by itself.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.boundary import Boundary
from callfuse.config import Config, Resolved, resolve
from callfuse.config.model import KeyPath, differences, dotted_name
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.asgi import Receive, Scope, Send

logger = logging.getLogger("callfuse.serve")

POLL_S = 2.0
"""Seconds between two checks of the file."""

FIXED: Final = frozenset(
    {
        ("tool_call_loop", "max_sessions"),
        *(("serve", key) for key in ("host", "port", "workers", "log_level", "shutdown_timeout_s")),
    }
)
"""Keys that hold as they were at the start."""
RELOADED: Final = ("tool_call_loop", "serve")
"""The blocks whose other keys may change."""

HANGUP: Final = getattr(signal, "SIGHUP", None)
"""None on Windows, which has no SIGHUP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the settings come from: a file, and the options of the command line; the environment does not change."""

    file: str
    options: Mapping[str, object]
    version: str | None

    @classmethod
    def of(cls, file: str | None, options: Mapping[str, object]) -> "Origin | None":
        """Make the origin of settings; None if there is no file that could change."""
        return cls(file, options, version_of(file)) if file else None

    def resolve(self) -> Resolved:
        """Read the settings as they are now. Raises ConfigError."""
        return resolve(self.file, options=self.options)


def version_of(file: str) -> str | None:
    """A text that changes with the file: time, size and inode number; None if the file cannot be examined."""
    with suppress(OSError):
        found = os.stat(os.path.expanduser(file))  # noqa: PTH116, PTH111 - a Path would be made for each look
        return f"{found.st_mtime_ns} {found.st_size} {found.st_ino}"
    return None


class Reloading:
    """The guarded proxy as an app whose settings follow their file while its lifespan lasts."""

    def __init__(self, app: CallFuseMiddleware, proxy: ReverseProxy, resolved: Resolved, origin: Origin) -> None:
        self._app = app
        self._proxy = proxy
        self._start = resolved
        self._config = resolved.config
        self._origin = origin
        self._version = origin.version

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        return (self._live if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            if version_of(self._origin.file) not in (None, self._version):
                self.reload()
            await asyncio.sleep(POLL_S)

    def reload(self) -> None:
        """Read the settings again, and use them if they are right."""
        self._version = version_of(self._origin.file)  # before the file is read: what is written meanwhile is news
        with Boundary(keep_traceback=True) as boundary:  # the server and its next look at the file go on
            resolved = self._origin.resolve()
            config = resolved.config
            self._proxy.configure(config.serve)
            self._app.configure(holding(resolved, self._start))
        if boundary.error is not None:
            self._log_refusal(boundary.error)
            return
        changed, self._config = list(differences(self._config, config)), config
        now = [path for path in changed if not _is_fixed(path)]
        logger.info("%s is read again; new from now on: %s", self._origin.file, _join(now) or "nothing")
        if later := [path for path in changed if _is_fixed(path)]:
            logger.warning("only from the next start on: %s", _join(later))

    def _log_refusal(self, error: Exception) -> None:
        what = "%s is not used, the settings stay as they are"
        if isinstance(error, ConfigError):
            wrong = "\n".join(f"  {line}" for line in str(error).splitlines())
            logger.error(f"{what}:\n%s", self._origin.file, wrong)
        else:
            logger.error(what, self._origin.file, exc_info=error)


def holding(read: Resolved, start: Resolved) -> Resolved:
    """Combine settings that were read again with those of the start, for the keys that cannot change."""
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
