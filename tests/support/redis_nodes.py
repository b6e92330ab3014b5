"""A real Cluster, and a server that Sentinels watch, for tests: on loopback ports, each process ended by its own.

A busy machine makes nodes silent, too. So they take a silent node for dead after a long time, and after a short one
only while a test has killed one and waits for another to take its place.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from tests.support.redis import PATIENCE_S, RedisServer, free_port

SLOTS = 16384
QUICK_MS = 500
"""After so long a node that is silent counts as dead, where one is."""
CALM_MS = 30_000
"""The same where none is."""
MASTER = "the-master"
HASTE = ("info-period", 500, "ping-period", 100, "ask-period", 100, "publish-period", 200, "tilt-trigger", 60_000)
"""Milliseconds after which Sentinels ask, tell each other, and notice that they themselves were held up."""
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A replica does not wait for others that may want the same data."""


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Until something holds; a node that is not there yet, or no more, holds nothing."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(RedisError, OSError):
            if holds():
                return
        time.sleep(0.05)
    raise AssertionError(f"in vain: {what}")


def _start_all(servers: Sequence[RedisServer]) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        for _ in pool.map(RedisServer.start, servers):
            pass


class Cluster:
    """Masters with a third of the slots each, or other parts, and perhaps a replica each. `path`: of the program."""

    def __init__(self, folder: Path, *, masters: int = 3, replicas: bool = False, path: str | None = None) -> None:
        self.masters = [self._node(folder / f"master-{at}", path) for at in range(masters)]
        self.replicas = [self._node(folder / f"replica-{at}", path) for at in range(masters * replicas)]

    @staticmethod
    def _node(folder: Path, path: str | None) -> RedisServer:
        folder.mkdir(parents=True)
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(QUICK_MS), "--dir", str(folder), *AT_ONCE]
        options += ["--cluster-require-full-coverage", "no"]
        return RedisServer(*options, bus_port=free_port(), path=path)

    @property
    def nodes(self) -> list[RedisServer]:
        """All of them."""
        return [*self.masters, *self.replicas]

    @property
    def living(self) -> list[RedisServer]:
        """Those that have not been killed."""
        return [node for node in self.nodes if node.is_running]

    @property
    def url(self) -> str:
        """The store, by all of its nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def start(self) -> "Cluster":
        """Start them, and return when all know each other."""
        _start_all(self.nodes)
        for master, (first, last) in zip(self.masters, self._parts(), strict=True):
            master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for at, node in enumerate(self.nodes):
            for other in self.nodes[:at]:
                node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        self._until(lambda node: len(self._known(node)) == len(self.nodes), "the nodes do not find each other")
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", self.id_of(master))
        self._until(_is_up, "the cluster is not up")
        for replica in self.replicas:
            wait_for(lambda node=replica: _has_link(node), "a replica has no link")  # type: ignore[misc]
        self._count_as_dead_after(CALM_MS)
        return self

    def _parts(self) -> list[tuple[int, int]]:
        """The first and the last slot of each master."""
        bounds = [at * SLOTS // len(self.masters) for at in range(len(self.masters) + 1)]
        return [(first, after - 1) for first, after in pairwise(bounds)]

    def _count_as_dead_after(self, milliseconds: int) -> None:
        for node in self.living:
            node.ask("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def end(self) -> None:
        """Kill them."""
        for node in self.nodes:
            node.end()

    def forget(self) -> None:
        """Empty them."""
        for node in self.masters:
            node.forget()

    def owner(self, key: str) -> RedisServer:
        """The node that has a key now, as the others say."""
        return self.owner_of_slot(key_slot(key.encode()))

    def owner_of_slot(self, slot: int) -> RedisServer:
        """The node that has a slot now, as the others say."""
        for node in self.living:
            with suppress(RedisError, OSError):
                found = self._owner_as_told(node, slot)
                if found is not None:
                    return found
        raise AssertionError(f"nobody has the slot {slot}")

    def _owner_as_told(self, asked: RedisServer, slot: int) -> RedisServer | None:
        for first, last, (_, port, *_), *_ in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(one for one in self.nodes if one.port == port)
        return None

    def replace(self, dead: RedisServer) -> RedisServer:
        """Kill a node that has slots; returns its replica, once that has them."""
        slot = next(slot for slot, _ in self._parts() if self.owner_of_slot(slot) is dead)
        dead.end()
        self._count_as_dead_after(QUICK_MS)
        wait_for(lambda: self.owner_of_slot(slot) is not dead, "no replica takes the slots")
        there = self.owner_of_slot(slot)
        self._until(lambda node: self._owner_as_told(node, slot) is there, "not all know who has the slots")
        self._until(_is_up, "the cluster is not up")
        self._count_as_dead_after(CALM_MS)
        return there

    def bring_back(self, dead: RedisServer) -> RedisServer:
        """Start a node that was killed and replaced; returns it, once it is a replica of that which has its slots."""
        dead.start()
        wait_for(lambda: _has_link(dead), "it does not become a replica")
        self._until(_is_up, "the cluster is not up")
        self._count_as_dead_after(CALM_MS)
        return dead

    def give(self, dead: RedisServer, target: RedisServer) -> None:
        """Let another node have the slots of one that was killed."""
        part = self._parts()[self.masters.index(dead)]
        for node in self.living:
            node.ask("CLUSTER", "DELSLOTSRANGE", *part)
        target.ask("CLUSTER", "ADDSLOTSRANGE", *part)
        self._until(lambda node: self._owner_as_told(node, part[0]) is target, "not all know who has the slots")
        self._until(_is_up, "the cluster is not up")

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """From now on the keys of a slot may go from one to the other."""
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer, most: int = 10_000) -> None:
        """Send keys of a slot from one to the other."""
        for key in source.ask("CLUSTER", "GETKEYSINSLOT", slot, most):
            source.ask("MIGRATE", "127.0.0.1", target.port, key.decode(), 0, 5000)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """The slot is the target's."""
        id_ = self.id_of(target)
        for node in [target, *(node for node in self.masters if node is not target)]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", id_)

    def move(
        self, slot: int, source: RedisServer, target: RedisServer, between: Callable[[], None] = lambda: None
    ) -> None:
        """Move a slot with its keys, one by one, while others may write more of them."""
        self.begin_move(slot, source, target)
        between()
        while source.ask("CLUSTER", "COUNTKEYSINSLOT", slot):
            self.move_keys(slot, source, target, 1)
            between()
        self.end_move(slot, target)

    @staticmethod
    def id_of(node: RedisServer) -> str:
        """The id of a node."""
        found: bytes = node.ask("CLUSTER", "MYID")
        return found.decode()

    def _known(self, node: RedisServer) -> list[bytes]:
        found: bytes = node.ask("CLUSTER", "NODES", raw=True)
        return [line for line in found.splitlines() if b"handshake" not in line]

    def _until(self, holds: Callable[[RedisServer], bool], what: str) -> None:
        wait_for(lambda: all(map(holds, self.living)), what)


class Watched:
    """A server with a replica, and three Sentinels that watch them. `path`: of the program."""

    def __init__(self, folder: Path, *, path: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--dir", str(folder), *AT_ONCE)
        self.servers = [RedisServer(*options, "--dbfilename", f"{at}.rdb", path=path) for at in range(2)]
        self.sentinels = [self._sentinel(folder / f"sentinel-{at}", path) for at in range(3)]

    def _sentinel(self, folder: Path, path: str | None) -> RedisServer:
        folder.mkdir(parents=True)
        (folder / "sentinel.conf").write_text(
            f"sentinel monitor {MASTER} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {MASTER} {CALM_MS}\n"
            f"sentinel failover-timeout {MASTER} 1000\n"  # one that does not succeed is tried again after twice as long
        )
        return RedisServer("--sentinel", config=folder / "sentinel.conf", path=path)

    @property
    def url(self) -> str:
        """The store, by its Sentinels."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{MASTER}"

    @property
    def living(self) -> list[RedisServer]:
        """The Sentinels that have not been killed."""
        return [one for one in self.sentinels if one.is_running]

    @property
    def master(self) -> RedisServer:
        """The server that can be written now, as the Sentinels say."""
        for sentinel in self.living:
            with suppress(RedisError, OSError):
                return self._master_as_told(sentinel)
        raise AssertionError("no Sentinel answers")

    def _master_as_told(self, sentinel: RedisServer) -> RedisServer:
        _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(one for one in self.servers if one.port == int(port))

    def start(self) -> "Watched":
        """Start them, and return when all know each other."""
        _start_all([*self.servers, *self.sentinels])
        first, second = self.servers
        second.ask("REPLICAOF", "127.0.0.1", first.port)
        for sentinel in self.sentinels:
            with suppress(ResponseError):  # servers before 7.0 are slow
                sentinel.ask("SENTINEL", "DEBUG", *HASTE)
        wait_for(lambda: _has_link(second), "the replica has no link")
        wait_for(lambda: all(map(self._knows_all, self.sentinels)), "the Sentinels do not find each other")
        return self

    def _knows_all(self, sentinel: RedisServer) -> bool:
        others = sentinel.ask("SENTINEL", "SENTINELS", MASTER)
        replicas = sentinel.ask("SENTINEL", "REPLICAS", MASTER)
        return (len(others), len(replicas)) == (len(self.sentinels) - 1, len(self.servers) - 1)

    def _count_as_dead_after(self, milliseconds: int) -> None:
        for sentinel in self.living:
            sentinel.ask("SENTINEL", "SET", MASTER, "down-after-milliseconds", milliseconds)

    def end(self) -> None:
        """Kill them."""
        for one in (*self.sentinels, *self.servers):
            one.end()

    def forget(self) -> None:
        """Empty them."""
        self.master.forget()

    def replace(self) -> RedisServer:
        """Kill the server that can be written; returns the other one, once that can be."""
        dead = self.master
        there = next(one for one in self.servers if one is not dead)
        dead.end()
        self._count_as_dead_after(QUICK_MS)
        wait_for(lambda: all(self._master_as_told(one) is there for one in self.living), "no replica takes its place")
        wait_for(lambda: b"role:master" in _replication(there), "it is still a replica")
        self._count_as_dead_after(CALM_MS)
        return there

    def bring_back(self) -> RedisServer:
        """Start the server that was killed, empty and as a master; returns it, once the Sentinels have made it a
        replica."""
        [dead] = [one for one in self.servers if not one.is_running]
        dead.start()
        wait_for(lambda: _has_link(dead), "it does not become a replica")
        return dead


def _replication(node: RedisServer) -> bytes:
    found: bytes = node.ask("INFO", "REPLICATION", raw=True)
    return found


def _has_link(replica: RedisServer) -> bool:
    """Whether it is a replica that has got all data of its master."""
    return b"master_link_status:up" in _replication(replica)


def _is_up(node: RedisServer) -> bool:
    """Whether the Cluster is usable, as a node says."""
    found: bytes = node.ask("CLUSTER", "INFO", raw=True)
    return b"cluster_state:ok" in found
