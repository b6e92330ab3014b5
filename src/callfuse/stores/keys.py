"""The keys of a Redis or Valkey. All begin with `callfuse:`.

Those of lanes and sessions go on with `{CREDENTIAL}:`, the hash of the client's credential. The braces make it a hash
tag: in a Cluster all keys of an exchange are on one node, and clients are spread over the nodes.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from callfuse.conversations.identity import DIGEST_SIZE, Lane
from callfuse.conversations.ledger import SessionKey
from callfuse.observe.ring import MOST_EVENTS

PREFIX: Final = "callfuse:"
PROBE: Final = f"{PREFIX}{{probe}}"
"""The key by which a server is tried that no exchange has asked yet."""
CHANGED: Final = f"{PREFIX}changed"
"""The key of the index of sessions that have set something."""


class StreamPlace(NamedTuple):
    """A stream of the store: its key, about how many events it keeps, how many seconds it is kept after its last event,
    and the name of its failures."""

    key: str
    most: int
    kept_s: int
    operation: str


FEED: Final = StreamPlace("callfuse:{events}:feed", MOST_EVENTS, 24 * 60 * 60, "feed")
FINDINGS: Final = StreamPlace("callfuse:{events}:findings", 50_000, 30 * 24 * 60 * 60, "findings")
"""The streams of events: of all, and of findings."""


def lane_key(lane: Lane) -> str:
    """Return the key of a lane."""
    names = f"{lane.session}\n{lane.source}\n{lane.agent}\n{lane.fingerprint.hex()}"
    return f"{PREFIX}{{{lane.credential.hex()}}}:lane:{_digest(names)}"


def last_use_key(lane: Lane) -> str:
    """Return the key of the time when a lane was last used, which outlives the lane."""
    return f"{lane_key(lane)}:used"


def session_key(session: SessionKey) -> str:
    """Return the key of a session. Its name is short and printable (`conversations/identity.py`)."""
    credential, name = session
    return f"{PREFIX}{{{credential.hex()}}}:session:{name}"


def name_key(name: str) -> str:
    """Return the key of the index of sessions of a name. The name may come from anybody who has the token of the admin
    page, so it is hashed."""
    return f"{PREFIX}name:{_digest(name)}"


def finding_key(finding_id: str) -> str:
    """Return the key of a finding. The id is hashed as the name of `name_key` is."""
    return f"{PREFIX}finding:{_digest(finding_id)}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=DIGEST_SIZE).hexdigest()
