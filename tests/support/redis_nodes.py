"""A real Cluster, and a server that Sentinels watch, for tests: on loopback ports, each process ended by its own."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from redis.crc import key_slot
from redis.exceptions import RedisError

from tests.support.redis import PATIENCE_S, RedisServer, free_port

SLOTS = 16384
NODE_TIMEOUT_MS = 500
"""After so long a node that is silent counts as dead."""
MASTER = "the-master"


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Until something holds; a node that is not there yet, or no more, holds nothing."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(RedisError, OSError):
            if holds():
                return
        time.sleep(0.05)
    raise AssertionError(f"in vain: {what}")


class Cluster:
    """Masters with a third of the slots each, or other parts, and perhaps a replica each."""

    def __init__(self, folder: Path, *, masters: int = 3, replicas: bool = False) -> None:
        self.masters = [self._node(folder / f"master-{at}") for at in range(masters)]
        self.replicas = [self._node(folder / f"replica-{at}") for at in range(masters * replicas)]

    @staticmethod
    def _node(folder: Path) -> RedisServer:
        folder.mkdir(parents=True)
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--dir", str(folder)]
        return RedisServer(*options, "--cluster-require-full-coverage", "no", bus_port=free_port())

    @property
    def nodes(self) -> list[RedisServer]:
        """All of them."""
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        """The store, by all of its nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def start(self) -> "Cluster":
        """Start them, and return when all know each other."""
        for node in self.nodes:
            node.start()
        bounds = [at * SLOTS // len(self.masters) for at in range(len(self.masters) + 1)]
        for master, first, last in zip(self.masters, bounds, bounds[1:], strict=False):
            master.ask("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus_port)
        self._until(lambda node: len(self._known(node)) == len(self.nodes), "the nodes do not find each other")
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", self.id_of(master))
        self._until(lambda node: b"cluster_state:ok" in node.ask("CLUSTER", "INFO", raw=True), "the cluster is not up")
        for replica in self.replicas:
            wait_for(lambda node=replica: b"master_link_status:up" in _info(node), "a replica has no link")  # type: ignore[misc]
        return self

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
        slot = key_slot(key.encode())
        for node in self.nodes:
            with suppress(RedisError, OSError):
                for first, last, (_, port, *_), *_ in node.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(one for one in self.nodes if one.port == port)
        raise AssertionError(f"nobody has {key}")

    def replace(self, dead: RedisServer, key: str) -> RedisServer:
        """Kill the node that has a key; returns its replica, once that has its slots."""
        dead.end()
        wait_for(lambda: self.owner(key) is not dead, "no replica takes the slots")
        there = self.owner(key)
        wait_for(lambda: b"cluster_state:ok" in there.ask("CLUSTER", "INFO", raw=True), "the cluster is not up")
        return there

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

    @staticmethod
    def id_of(node: RedisServer) -> str:
        """The id of a node."""
        found: bytes = node.ask("CLUSTER", "MYID")
        return found.decode()

    def _known(self, node: RedisServer) -> list[bytes]:
        found: bytes = node.ask("CLUSTER", "NODES", raw=True)
        return [line for line in found.splitlines() if b"handshake" not in line]

    def _until(self, holds: Callable[[RedisServer], bool], what: str) -> None:
        wait_for(lambda: all(map(holds, self.nodes)), what)


class Watched:
    """A server with a replica, and three Sentinels that watch them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.servers = [RedisServer("--dir", str(folder), "--dbfilename", f"{at}.rdb") for at in range(2)]
        self.sentinels = [self._sentinel(folder / f"sentinel-{at}") for at in range(3)]

    def _sentinel(self, folder: Path) -> RedisServer:
        folder.mkdir(parents=True)
        (folder / "sentinel.conf").write_text(
            f"sentinel monitor {MASTER} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {MASTER} {NODE_TIMEOUT_MS}\n"
            f"sentinel failover-timeout {MASTER} 3000\n"
        )
        return RedisServer("--sentinel", config=folder / "sentinel.conf")

    @property
    def url(self) -> str:
        """The store, by its Sentinels."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """The server that can be written now, as the Sentinels say."""
        for sentinel in self.sentinels:
            with suppress(RedisError, OSError):
                _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
                return next(one for one in self.servers if one.port == int(port))
        raise AssertionError("no Sentinel answers")

    def start(self) -> "Watched":
        """Start them, and return when all know each other."""
        first, second = self.servers
        first.start()
        second.start()
        second.ask("REPLICAOF", "127.0.0.1", first.port)
        for sentinel in self.sentinels:
            sentinel.start()
        wait_for(lambda: b"master_link_status:up" in _info(second), "the replica has no link")
        wait_for(lambda: all(map(self._knows_all, self.sentinels)), "the Sentinels do not find each other")
        return self

    def _knows_all(self, sentinel: RedisServer) -> bool:
        others = sentinel.ask("SENTINEL", "SENTINELS", MASTER)
        replicas = sentinel.ask("SENTINEL", "REPLICAS", MASTER)
        return (len(others), len(replicas)) == (len(self.sentinels) - 1, len(self.servers) - 1)

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
        dead.end()
        wait_for(lambda: self.master is not dead, "no replica takes its place")
        there = self.master
        wait_for(lambda: b"role:master" in _info(there), "it is still a replica")
        return there


def _info(node: RedisServer) -> bytes:
    found: bytes = node.ask("INFO", "REPLICATION", raw=True)
    return found
