"""Build the keys in a Redis or Valkey. All begin with `callfuse:`.

In keys of lanes and sessions, `{CREDENTIAL}:` follows, the hash of the client's credential. The braces make it a hash
tag: in a Cluster, all keys of an exchange are on one node, and clients are spread over the nodes.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from callfuse.conversations.identity import DIGEST_SIZE, Lane
from callfuse.conversations.ledger import SessionKey
from callfuse.observe.ring import MOST_EVENTS

PREFIX: Final = "callfuse:"
PROBE: Final = f"{PREFIX}{{probe}}"
"""The key for probing a server that no exchange has used yet."""
CHANGED: Final = f"{PREFIX}changed"
"""The key of the index of sessions with changed settings."""


class StreamPlace(NamedTuple):
    """A stream of the store: its key, the approximate number of events that it keeps, its lifetime in seconds after its
    last event, and the name of its operations."""

    key: str
    most: int
    kept_s: int
    operation: str


FEED: Final = StreamPlace("callfuse:{events}:feed", MOST_EVENTS, 24 * 60 * 60, "feed")
FINDINGS: Final = StreamPlace("callfuse:{events}:findings", 50_000, 30 * 24 * 60 * 60, "findings")
"""The streams of all events, and of findings."""


def lane_key(lane: Lane) -> str:
    """Return the key of a lane."""
    names = f"{lane.session}\n{lane.source}\n{lane.agent}\n{lane.fingerprint.hex()}"
    return f"{PREFIX}{{{lane.credential.hex()}}}:lane:{_digest(names)}"


def last_use_key(lane: Lane) -> str:
    """Return the key of the time of a lane's last use, which is kept longer than the lane."""
    return f"{lane_key(lane)}:used"


def session_key(session: SessionKey) -> str:
    """Return the key of a session. Its name is short and printable (`conversations/identity.py`)."""
    credential, name = session
    return f"{PREFIX}{{{credential.hex()}}}:session:{name}"


def name_key(name: str) -> str:
    """Return the key of the index of sessions of a name. The name is hashed, because anyone with the token of the admin
    page can choose it."""
    return f"{PREFIX}name:{_digest(name)}"


def finding_key(finding_id: str) -> str:
    """Return the key of a finding. The id is hashed, as in `name_key`."""
    return f"{PREFIX}finding:{_digest(finding_id)}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=DIGEST_SIZE).hexdigest()
