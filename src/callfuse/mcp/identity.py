"""Finds out whose a call is, from headers and the request's `_meta`. What one caller has called counts together.

The first of these that names a conversation counts: callfuse's own header, headers of harnesses and gateways, the keys
of `_meta` below, the session of the transport (`Mcp-Session-Id`), which some clients open for each call. Without any of
these, as in revision 2026-07-28, a caller is a credential and a client: its name and version, and what its requests say
of where they come from and go to. Never an address. Everything is scoped by the path, and by a hash of the credential.
"""

from collections.abc import Iterable, Mapping, Set
from hashlib import blake2b
from typing import Any, Final

from callfuse.boundary import Boundary
from callfuse.conversations.identity import DIGEST_SIZE, NO_CREDENTIAL, Headers, Lane, lane_of, session_name
from callfuse.wire.jsontext import dumps

SESSION: Final = b"mcp-session-id"
CLIENT: Final = "io.modelcontextprotocol/clientInfo"
CONVERSATIONS: Final = ("callfuse/session", "threadId", "sessionID", "openai/session", "session_id", "sessionId")
"""Keys of `_meta` that name a conversation: ours, Codex's thread, opencode's and ChatGPT's session, and what others
call it."""
_BAGGAGE: Final = "baggage"
_OF_CLIENT: Final = (b"host", b"origin", b"user-agent")


class _Place:
    """What tells callers apart whatever their session is: the server's path, and whether they are authenticated."""

    def __init__(self, path: str, authentication: bytes) -> None:
        self._parts = path.encode("utf-8", "surrogatepass"), authentication

    def opening(self) -> Iterable[bytes]:
        return self._parts


def caller_of(scope: Mapping[str, Any], headers: Headers, meta: Mapping[str, Any], further: Set[bytes]) -> Lane:
    """The lane of a request. `scope`: that of ASGI, `headers`: its headers by name in lower case, `further`: names of
    those that are credentials, too."""
    named = next((value for key in CONVERSATIONS if isinstance(value := meta.get(key), str) and value.strip()), None)
    baggage = meta.get(_BAGGAGE)
    if isinstance(baggage, str) and b"baggage" not in headers:
        headers = {**headers, b"baggage": baggage.encode("utf-8", "replace")}
    payload = {} if named is None else {"session_id": named}
    place = _Place(scope["path"], _authentication(scope.get("user")))
    lane = lane_of(headers, place, scope.get("query_string", b""), payload, further=further)
    session = headers.get(SESSION, b"").decode("latin-1")
    if not lane.named and session:
        return lane._replace(session=session_name(session), source=SESSION.decode())
    if lane.named and lane.credential != NO_CREDENTIAL:
        return lane
    fingerprint = _fingerprint(lane, headers, meta)
    if lane.named:  # anybody may use the name: what an equal client does not send counts apart
        return lane._replace(fingerprint=fingerprint)
    return lane._replace(session=fingerprint.hex(), fingerprint=fingerprint)


def _authentication(user: object) -> bytes:
    """What a middleware in front has found out. Nobody whose token has expired gets what was given to it before."""
    with Boundary():  # Starlette's base class raises NotImplementedError
        if user is not None:
            return b"known" if getattr(user, "is_authenticated", None) else b"unknown"
    return b""


def _fingerprint(lane: Lane, headers: Headers, meta: Mapping[str, Any]) -> bytes:
    """A digest of the client as far as its requests describe it."""
    client = meta.get(CLIENT)
    said = [client.get(key) for key in ("name", "version")] if isinstance(client, dict) else []
    parts = [lane.fingerprint, *(headers.get(name, b"") for name in _OF_CLIENT), dumps(said)]
    digest = blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        digest.update(b"%d:%b" % (len(part), part))
    return digest.digest()
