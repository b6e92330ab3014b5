"""Keep the newest findings for a while, so that people can rate them by their ids.

Processes that share a store find each other's findings. Arguments of calls are not kept.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any, Final

import orjson

from callfuse.conversations.ledger import FindingStore
from callfuse.observe.events import Event, FeedbackGiven, FindingSeen
from callfuse.observe.fields import text

LATEST: Final = 1e11
"""Later times, in seconds since the epoch, cannot be converted to dates."""
LONGEST_NAME: Final = 1000
"""Characters of a tool's name as it came."""
MOST: Final = 5000
"""The most findings that a process keeps: about 3 MB."""


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A kept finding. Texts are as in log lines: short, printable, secrets masked. `time`: seconds since the epoch;
    `action`: a rung, or `allow`. `call` identifies the call: the tool's original name, which may be cut, the signature
    in hex, and the lane. All others are as in `Finding` and `FindingSeen`."""

    finding_id: str
    time: float
    kind: str
    tool: str
    count: int
    threshold: int
    hard: bool
    action: str
    arm: str
    session: str
    model: str
    dialect: str
    call: tuple[str, str, str]


class RecentFindings:
    """The newest findings, by id, and their ratings. `store`: shares them between processes; None: not shared."""

    kinds: Final = frozenset({FindingSeen})

    def __init__(self, store: FindingStore | None = None, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[str, KeptFinding] = OrderedDict()
        self._said: OrderedDict[str, str] = OrderedDict()
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Keep a finding. If it comes again with another action, the new one replaces it."""
        if isinstance(event, FindingSeen):
            found = _kept(event, self._clock())
            with self._lock:
                _put(self._kept, found.finding_id, found)
            if self._store is not None:
                self._store.share_finding(found.finding_id, orjson.dumps(found))

    async def find(self, finding_id: str) -> KeptFinding | None:
        """Return the finding of an id; None if it is unknown or too old. Raises StoreUnavailable if it is not in this
        process and the store fails."""
        found = self._kept.get(finding_id)
        if found is None and self._store is not None:
            found = _read(await self._store.shared_finding(finding_id))
        return found

    async def say(self, found: KeptFinding, kind: str) -> FeedbackGiven | None:
        """Note a rating of a finding. Returns its event, or None if the finding already had this rating."""
        before = self._said.get(found.finding_id, "")
        if self._store is not None:
            before = await self._store.swap_feedback(found.finding_id, kind) or before
        with self._lock:
            _put(self._said, found.finding_id, kind)
        return None if before == kind else FeedbackGiven(found.finding_id, kind, found.kind, found.tool)


def _put(kept: OrderedDict[str, Any], key: str, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MOST:
        kept.popitem(last=False)


def _kept(event: FindingSeen, now: float) -> KeptFinding:
    found, where = event.verdict.finding, event.where
    return KeptFinding(
        event.finding_id,
        now,
        str(found.kind),
        text(event.verdict.call.full_name),
        found.count,
        found.threshold,
        found.hard,
        event.action,
        event.arm,
        text(where.session),
        text(where.model),
        where.dialect,
        (event.verdict.call.full_name[:LONGEST_NAME], event.verdict.call.signature.hex(), where.lane),
    )


def _read(value: bytes | None) -> KeptFinding | None:
    """Read a finding that another process kept; None if there is none, or if another version of callfuse wrote it."""
    try:
        given = orjson.loads(value or b"null")
        found = KeptFinding(**{**given, "call": tuple(given["call"])})
    except (TypeError, ValueError, KeyError):
        return None
    is_ours = [type(one) for one in found.call] == [str] * 3
    is_ours &= all(type(getattr(found, one.name)) is one.type for one in fields(found) if one.name != "call")
    return found if is_ours and 0 <= found.time < LATEST else None
