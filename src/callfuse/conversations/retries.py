"""Find requests that are sent again and again although the vendor answers only with errors.

A failed request is kept with its lane for a minute, as a digest of its body. The next successful answer with calls
removes these, because the lane's state is then written without them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from callfuse.conversations.ledger import StormEntry
from callfuse.conversations.storms import MOST, Row, recent, storm
from callfuse.model import Finding
from callfuse.policy.settings import LoopSettings

KIND: Final = "retry_storm"
WITHIN_S: Final = 60.0
"""Requests are counted within so many seconds."""
FAILED_FROM: Final = 400
"""The lowest status of an error."""


def request_digest(body: bytes) -> bytes:
    """Return a digest that identifies a request."""
    return blake2b(body, digest_size=16).digest()


def with_failure(failures: Sequence[StormEntry], digest: bytes, now: float) -> Row:
    """Return the failed requests of a lane with one more, without those that no longer count."""
    return (*recent(failures, now, WITHIN_S), StormEntry(digest, now))[-MOST:]


def find_storm(failures: Sequence[StormEntry], body: bytes, now: float, settings: LoopSettings) -> Finding | None:
    """Return the finding for a request with this body, if it is one too many."""
    limit = settings.limit_of(KIND) if settings.enabled else 0
    counted = recent(failures, now, WITHIN_S)
    if not 0 < limit <= 1 + len(counted):
        return None
    digest = request_digest(body)
    return storm(KIND, digest, 1 + [one.digest for one in counted].count(digest), limit, WITHIN_S)
