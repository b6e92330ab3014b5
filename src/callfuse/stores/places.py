"""Find the server of a key: a node of a Cluster, or the master that Sentinels know. Does no IO.

    slots = SlotMap(["10.0.0.6:6379"])
    slots.learn(reply, asked)        # of CLUSTER SLOTS
    slots.owner("callfuse:{tag}:...")  # "10.0.0.7:6379"
    slots.move(slot, node)           # after MOVED

A key belongs to one of 16384 slots, by its hash tag: the text between its first braces, else the whole key.
"""

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import AskError, MovedError, TryAgainError

from callfuse.stores.replies import UnexpectedReplyError

SLOTS: Final = 16384
_CODES: Final = ((MovedError, "MOVED"), (AskError, "ASK"), (TryAgainError, "TRYAGAIN"))
"""The errors by which a Cluster redirects a client. Older releases of redis-py leave the code in the text."""


class Elsewhere(NamedTuple):
    """A redirection by a node. `code`: MOVED, ASK or TRYAGAIN; `slot` and `node` are set for the first two."""

    code: str
    slot: int = 0
    node: str = ""


def hash_tag(key: str) -> str:
    """Return the part of a key that determines its slot."""
    _, mark, rest = key.partition("{")
    tag, end, _ = rest.partition("}")
    return tag if mark and end and tag else key


def slot_of(key: str) -> int:
    """Return the slot of a key."""
    return crc_hqx(hash_tag(key).encode(), 0) % SLOTS


class SlotMap:
    """The nodes of a Cluster by slot, as far as they are known. `seeds`: nodes that are asked first."""

    asked: Final = "no node of the cluster"
    question: Final = ("CLUSTER", "SLOTS")

    def __init__(self, seeds: Sequence[str]) -> None:
        self._seeds = seeds
        self._owners = [""] * SLOTS
        self.nodes: list[str] = []
        """The nodes with slots, without replicas."""

    @property
    def to_ask(self) -> list[str]:
        """The nodes that may know the slots, each once."""
        return [*dict.fromkeys([*self.nodes, *self._seeds])]

    def owner(self, key: str) -> str:
        """Return the node that has a key; empty if that is not known."""
        return self._owners[slot_of(key)]

    def learn(self, reply: Any, asked: str) -> None:
        """Update the map from the reply of `asked` to CLUSTER SLOTS. Raises UnexpectedReplyError."""
        owners, nodes = [""] * SLOTS, dict[str, None]()
        if not isinstance(reply, list):
            raise UnexpectedReplyError(f"expected slots, got {type(reply).__name__}")
        for one in reply:
            try:
                first, last, (host, port, *_), *_ = one
                name = host.decode() if host else ""
                node, width = _node(name, int(port), asked), last - first + 1
            except (TypeError, ValueError, AttributeError) as error:
                raise UnexpectedReplyError(f"unreadable slots: {error}") from None
            if not 0 <= first <= last < SLOTS:
                raise UnexpectedReplyError("no such slots")
            owners[first : last + 1] = [node] * width
            if node:
                nodes[node] = None
        if not nodes:
            raise UnexpectedReplyError("the node has no slots of a Cluster")
        self._owners, self.nodes = owners, [*nodes]

    def move(self, slot: int, node: str) -> None:
        """Record that a slot has moved."""
        self._owners[slot] = node


class MasterMap:
    """The master of a name, as far as it is known. `seeds`: the Sentinels."""

    asked: Final = "no Sentinel"

    def __init__(self, seeds: Sequence[str], name: str) -> None:
        self._seeds = seeds
        self.question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
        self._master = ""

    @property
    def nodes(self) -> list[str]:
        """The master."""
        return [self._master] if self._master else []

    @property
    def to_ask(self) -> list[str]:
        """The Sentinels."""
        return [*self._seeds]

    def owner(self, key: str) -> str:
        """Return the master; empty if it is not known."""
        return self._master

    def learn(self, reply: Any, asked: str) -> None:
        """Update the master from the reply of a Sentinel, `asked`. Raises UnexpectedReplyError."""
        if reply is None:
            raise UnexpectedReplyError(f"the Sentinel {asked} knows no master of the name {self.question[2]!r}")
        try:
            host, port = reply
            self._master = _node(host.decode(), int(port), asked)
        except (TypeError, ValueError, AttributeError) as error:
            raise UnexpectedReplyError(f"not the address of a master: {error}") from None

    def forget(self) -> str:
        """Forget the master, because it has failed and another may replace it. Returns it."""
        master, self._master = self._master, ""
        return master


def elsewhere(error: Exception, asked: str) -> Elsewhere | None:
    """Return the redirection in an error of the node `asked`; None for any other error."""
    code, _, rest = str(error).partition(" ")
    known = next((name for kind, name in _CODES if isinstance(error, kind)), "")
    if known and code != known:
        code, rest = known, str(error)
    if code == "TRYAGAIN":
        return Elsewhere(code)
    slot, _, node = rest.partition(" ")
    host, mark, port = node.partition(" ")[0].rpartition(":")
    if code not in ("MOVED", "ASK") or not mark or not (slot.isdecimal() and port.isdecimal()) or int(slot) >= SLOTS:
        return None
    return Elsewhere(code, int(slot), _node(host, int(port), asked))


def _node(host: str, port: int, asked: str) -> str:
    """Return the name of a node; empty if it is unknown. If a node does not know its own host, the host of the node
    `asked` is used."""
    return "" if host == "?" else f"{host or asked.rpartition(':')[0]}:{port}"
