"""Which lane an exchange belongs to.

A lane is one conversation: its session id, where the client sends one, and always the conversation's own fingerprint,
so that parallel sub-agents of one session never share a streak. All of it is scoped by a hash of the credential.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of

SESSION_HEADER = b"x-callfuse-session-id"
CREDENTIAL_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
_KEY_IN_QUERY = re.compile(rb"(?:\A|&)key=([^&]+)")
"""Where Google's clients may put the credential."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{8,200}")


class Lane(NamedTuple):
    """The ledger's key. `session` is what logs call it: the client's own id, or the fingerprint."""

    credential: bytes
    session: str
    fingerprint: bytes
    named: bool
    """Whether the client gave the session its id."""


def lane_at(lane: Lane, opening: Iterable[bytes]) -> Lane:
    """The lane of a request of the same session that opens with this."""
    fingerprint = digest_of(opening)
    return lane._replace(fingerprint=fingerprint, session=lane.session if lane.named else fingerprint.hex())


def lane_of(headers: Mapping[bytes, bytes], request: Request, query: bytes = b"") -> Lane:
    """The lane of a request with these headers (names in lower case) and this query."""
    keys = [headers[name] for name in CREDENTIAL_HEADERS if name in headers]
    if query:
        keys += _KEY_IN_QUERY.findall(query)
    credential = digest_of(keys)
    fingerprint = digest_of(request.opening())
    given = headers.get(SESSION_HEADER, b"").decode("latin-1").strip()
    if not given:
        return Lane(credential, fingerprint.hex(), fingerprint, named=False)
    plain = _PLAIN_ID.fullmatch(given) is not None
    session = given if plain else blake2b(given.encode(), digest_size=16).hexdigest()
    return Lane(credential, session, fingerprint, named=True)
