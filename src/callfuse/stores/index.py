"""Index the sessions in a Redis or Valkey, so that people can find them by name.

Keys of sessions contain their clients' credentials, which a person who searches does not know. In a Cluster they are on
any node. So each name has a sorted set of its sessions, and one more set has the sessions with changed settings:

    callfuse:name:DIGEST   CREDENTIAL:NAME by the time at which it was last noted
    callfuse:changed       the same

A process notes a session when it first serves it, and again after a quarter of its lifetime. No exchange waits for
this. An entry expires a quarter of a lifetime after its session, a set with its last entry. Each set keeps only the
newest `MOST`, so the cost of a search does not depend on the size of the store.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from callfuse.conversations.ledger import KeptSession, SessionKey, SessionState, StoreUnavailable
from callfuse.conversations.memory import is_of_name
from callfuse.stores.breaker import Breaker
from callfuse.stores.keys import CHANGED, name_key, session_key
from callfuse.stores.node import Script
from callfuse.stores.replies import Reader, read_number, read_scores, states_of

MOST: Final = 1000
"""The most sessions that a search finds, by a name or by changed settings: the last noted ones."""
MOST_NOTED: Final = 10_000
"""The most sessions whose last note a process remembers. If there are more, some are noted more often."""
RENEWAL: Final = 0.25
"""The part of a session's lifetime after which it is noted again."""
AT_A_TIME: Final = 50
"""Sessions that one script reads: exchanges wait while it runs."""
TOGETHER: Final = 8
"""Scripts that run at a time for one search."""
INDEX: Final = "index"
"""The name of these operations in counts."""

_FINGERPRINT: Final = re.compile(r"\.[0-9a-f]{32}")
_FINGERPRINT_LENGTH: Final = 33

NOTE: Final = Script("""
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
""")
"""Add ARGV[1] with the score ARGV[2]. Drop entries with scores up to ARGV[3], and all but the ARGV[4] newest. The set
expires after ARGV[5] milliseconds."""
NOTED: Final = Script("return redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')")
"""The ARGV[1] newest entries, each followed by its score."""
STATES: Final = Script("""
local found = {}
for at, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and string.find(value.err, '^WRONGTYPE') then value = '' end
  if type(value) == 'table' then return value end
  found[2 * at - 1], found[2 * at] = value, redis.call('PTTL', key)
end
return found
""")
"""The value of each key, and the milliseconds until it expires."""

Ask = Callable[[str, Script, Sequence[str], Sequence[str | bytes | int], Reader[Any]], Awaitable[Any]]
"""Runs a script, given the name of the operation, the script, keys, arguments and a reader of the reply. Raises
StoreUnavailable."""


class SessionIndex:
    """The index, for one process. `ttl_s`: the lifetime of a session; `decode`: reads a session's value, and returns
    None for a missing one. `is_kept`: whether this process notes its sessions. `clock` returns seconds."""

    def __init__(
        self,
        ask: Ask,
        decode: Callable[[bytes | None], SessionState | None],
        *,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._decode = decode
        self._ttl_s = ttl_s
        self._breaker = Breaker(clock)
        self._noted_at: OrderedDict[tuple[SessionKey, bool], float] = OrderedDict()
        self.is_kept = False

    def is_due(self, session: SessionKey, now: float, *, has_set: bool) -> bool:
        """Whether to note a session now. `has_set`: it has changed settings."""
        if not self.is_kept:
            return False
        noted_at = self._noted_at.get((session, has_set))
        if noted_at is not None and abs(now - noted_at) < RENEWAL * self._ttl_s:
            return False
        return self._breaker.closed or self._breaker.is_due()

    def forget(self, session: SessionKey) -> None:
        """Note a session again next time, because the server lost it, for example in a restart."""
        for has_set in (False, True):
            self._noted_at.pop((session, has_set), None)

    async def note(self, session: SessionKey, now: float, *, has_set: bool) -> None:
        """Note a session. If the server fails or refuses, the session is due again after a pause."""
        mark = session, has_set
        self._noted_at.pop(mark, None)
        self._noted_at[mark] = now
        while len(self._noted_at) > MOST_NOTED:
            self._noted_at.popitem(last=False)
        life_s = (1 + RENEWAL) * self._ttl_s
        member = f"{session[0].hex()}:{session[1]}"
        entry = member, repr(now), repr(now - life_s), MOST, max(1, round(1000 * life_s))
        try:
            for key in (name_key(_base(session[1])), *([CHANGED] if has_set else ())):
                await self._ask(INDEX, NOTE, [key], entry, read_number)
        except StoreUnavailable:
            self._noted_at.pop(mark, None)
            self._breaker.record_failure()
            return
        if not self._breaker.closed:
            self._breaker.close()

    async def of_name(self, name: str, now: float) -> dict[SessionKey, float]:
        """Return the sessions with this name, or with this name, a dot and a fingerprint, each with the time of its
        note; the last one first. Raises StoreUnavailable."""
        found = await self._newest(name_key(_base(name)), now)
        return {session: at for session, at in found.items() if is_of_name(session[1], name)}

    async def changed(self, now: float) -> dict[SessionKey, float]:
        """Return the sessions with changed settings, each with its last note, newest first. Raises StoreUnavailable."""
        return await self._newest(CHANGED, now)

    async def read(self, known: Iterable[KeptSession], now: float) -> list[KeptSession]:
        """Return the sessions from the server, or from `known` if it lacks them. Raises StoreUnavailable."""
        of_client: dict[bytes, list[KeptSession]] = {}
        for one in known:
            of_client.setdefault(one.key[0], []).append(one)
        parts = [part for own in of_client.values() for part in _parts(own, AT_A_TIME)]
        found = []
        for some in _parts(parts, TOGETHER):
            answers = await asyncio.gather(
                *(
                    self._ask(INDEX, STATES, [session_key(one.key) for one in part], (), states_of(len(part)))
                    for part in some
                )
            )
            for part, pairs in zip(some, answers, strict=True):
                found += [self._kept(one, value, left, now) for one, (value, left) in zip(part, pairs, strict=True)]
        return found

    def _kept(self, known: KeptSession, value: bytes | None, left_ms: int, now: float) -> KeptSession:
        state = self._decode(value)
        if state is None:
            return known
        return KeptSession(known.key, state, now - max(0.0, self._ttl_s - left_ms / 1000))

    async def _newest(self, key: str, now: float) -> dict[SessionKey, float]:
        found: dict[SessionKey, float] = {}
        for member, at in await self._ask(INDEX, NOTED, [key], (MOST,), read_scores):
            session = _decode(member)
            if session is not None and now - at < (1 + RENEWAL) * self._ttl_s:
                found[session] = at
        return found


def _base(name: str) -> str:
    """Return a name without the fingerprints at its end. Names that match each other in a search have the same base."""
    end = len(name)
    while end >= _FINGERPRINT_LENGTH and _FINGERPRINT.fullmatch(name, end - _FINGERPRINT_LENGTH, end):
        end -= _FINGERPRINT_LENGTH
    return name[:end]


def _decode(member: bytes) -> SessionKey | None:
    """Decode a noted session; None for a value that callfuse has not written."""
    credential, mark, name = member.partition(b":")
    try:
        return (bytes.fromhex(credential.decode("ascii")), name.decode()) if mark else None
    except ValueError:
        return None


def _parts(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
