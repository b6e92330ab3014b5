"""An index of the sessions in a Redis or Valkey, for people who ask for one by its name.

Sessions lie with the credentials of their clients, which nobody who asks knows, and in a Cluster on any node. So each
name has a sorted set of the sessions that are called so, and one more set has those that have set something:

    callfuse:name:DIGEST   CREDENTIAL:NAME by the time at which it was last noted
    callfuse:changed       the same

A process notes a session when it first serves it, and again when a quarter of its life is over; no exchange waits for
that. An entry ends a quarter of a life after the session does, a set with its last entry. Each set keeps the newest
`MOST` only, so that to ask costs the same however much the server holds.
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
"""Sessions of a name, and such as have set something, that can be found: those that were noted last."""
MOST_NOTED: Final = 10_000
"""Sessions whose last note a process remembers; beyond that, some are noted more often."""
RENEWAL: Final = 0.25
"""The part of a session's life after which it is noted again."""
AT_A_TIME: Final = 50
"""Sessions that one script reads: exchanges wait while it runs."""
TOGETHER: Final = 8
"""Scripts that are under way at a time for one question."""
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
"""Add ARGV[1] with the score ARGV[2], drop what has a score up to ARGV[3] and all but the ARGV[4] newest; the set then
lives for ARGV[5] milliseconds."""
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
"""The value of each key, and for how many milliseconds it lives on."""

Ask = Callable[[str, Script, Sequence[str], Sequence[str | bytes | int], Reader[Any]], Awaitable[Any]]
"""Runs a script, given the name of the operation, keys, arguments and what reads the reply; raises
StoreUnavailable."""


class SessionIndex:
    """The index, as one process writes and reads it. `ttl_s`: the life of a session; `decode`: reads the value of one,
    None for none. `is_kept`: whether this process notes its sessions. `clock` returns seconds."""

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
        """Whether to note a session now. `has_set`: it has set something."""
        if not self.is_kept:
            return False
        noted_at = self._noted_at.get((session, has_set))
        if noted_at is not None and abs(now - noted_at) < RENEWAL * self._ttl_s:
            return False
        return self._breaker.closed or self._breaker.is_due()

    def forget(self, session: SessionKey) -> None:
        """Note a session again next time, because the server has lost it, as after a restart."""
        for has_set in (False, True):
            self._noted_at.pop((session, has_set), None)

    async def note(self, session: SessionKey, now: float, *, has_set: bool) -> None:
        """Note a session. Where the server fails or refuses, it is due again, after a pause."""
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
        """Return when each session was noted that has this name, or a name that begins with it, followed by a dot and a
        fingerprint; the last one first. Raises StoreUnavailable."""
        found = await self._newest(name_key(_base(name)), now)
        return {session: at for session, at in found.items() if is_of_name(session[1], name)}

    async def changed(self, now: float) -> dict[SessionKey, float]:
        """Return when each session was noted that has set something, the last one first. Raises StoreUnavailable."""
        return await self._newest(CHANGED, now)

    async def read(self, known: Iterable[KeptSession], now: float) -> list[KeptSession]:
        """Sessions as the server has them, else as they are `known`. Raises StoreUnavailable."""
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
    """Return a name without the fingerprints at its end. Names that are found by one another have the same base."""
    end = len(name)
    while end >= _FINGERPRINT_LENGTH and _FINGERPRINT.fullmatch(name, end - _FINGERPRINT_LENGTH, end):
        end -= _FINGERPRINT_LENGTH
    return name[:end]


def _decode(member: bytes) -> SessionKey | None:
    """Decode a session that was noted; None for a value that callfuse has not written."""
    credential, mark, name = member.partition(b":")
    try:
        return (bytes.fromhex(credential.decode("ascii")), name.decode()) if mark else None
    except ValueError:
        return None


def _parts(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
