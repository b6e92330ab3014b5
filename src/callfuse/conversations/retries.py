"""Finds requests that are sent again and again although the vendor answers with errors only.

A request that has failed is kept with its lane for a minute, by a digest of its body. The next answer with calls that
is no error ends that, because the lane's state is written anew then.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from callfuse.conversations.ledger import FailedRequest
from callfuse.model import Finding
from callfuse.model.finding import NO_TOOL
from callfuse.policy.settings import LoopSettings

KIND: Final = "retry_storm"
WITHIN_S: Final = 60.0
"""Seconds in which requests are counted."""
MOST: Final = 250
"""Failed requests that a lane keeps, the newest ones. A higher limit finds nothing."""
FAILED_FROM: Final = 400
"""The lowest status of an error."""


def request_digest(body: bytes) -> bytes:
    """What identifies a request."""
    return blake2b(body, digest_size=16).digest()


def with_failure(failures: Sequence[FailedRequest], digest: bytes, now: float) -> tuple[FailedRequest, ...]:
    """The failed requests of a lane with one more, without those that no longer count."""
    return (*_recent(failures, now), FailedRequest(digest, now))[-MOST:]


def find_storm(failures: Sequence[FailedRequest], body: bytes, now: float, settings: LoopSettings) -> Finding | None:
    """What is found in a request with this body, if it is one too many."""
    limit = settings.limit_of(KIND) if settings.enabled else 0
    recent = _recent(failures, now)
    if not 0 < limit <= 1 + len(recent):
        return None
    digest = request_digest(body)
    count = 1 + [one.digest for one in recent].count(digest)
    if count < limit:
        return None
    return Finding(KIND, NO_TOOL, digest, count, limit, WITHIN_S, hard=False)


def _recent(failures: Sequence[FailedRequest], now: float) -> list[FailedRequest]:
    """Those within the time; the clocks of several hosts may differ."""
    return [one for one in failures if abs(now - one.time) <= WITHIN_S]
