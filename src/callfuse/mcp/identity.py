"""Identify callers from headers and the request's `_meta`: whose calls count together (`caller_of`), and who may read a
result (`Identity`).

The first name of a conversation is used, from: callfuse's own header, headers of harnesses and gateways, the keys of
`_meta` below, and the transport session (`Mcp-Session-Id`), which some clients open for each call. Without any of
these, as in revision 2026-07-28, a caller is a credential and a client: its name and version, and all headers except
those that cannot identify a user, because a server may identify users by any header. Addresses are never used.
Everything is scoped by the server's URL, by the user that a middleware in front has authenticated, by a hash of the
credential, and by headers that name a user.

Anyone may use a name, and a session may be shared. So a result is repeated only for a request with an equal identity:
every header except those of one message, and every name in `_meta`. If anything differs, the calls still count
together, but the notice comes without the result.
"""

import re
from collections.abc import Iterable, Mapping, Set
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from callfuse.boundary import Boundary
from callfuse.conversations.identity import (
    CREDENTIAL_HEADERS,
    DIGEST_SIZE,
    NO_CREDENTIAL,
    Headers,
    Lane,
    credential_of,
    lane_of,
    read_session_headers,
    session_cookies,
    session_name,
)
from callfuse.wire.jsontext import dumps

SESSION: Final = b"mcp-session-id"
CLIENT: Final = "io.modelcontextprotocol/clientInfo"
CONVERSATIONS: Final = ("callfuse/session", "threadId", "sessionID", "openai/session")
"""Keys of `_meta` that name a conversation: ours, Codex's thread, opencode's and ChatGPT's session."""
OF_OTHERS: Final = ("session_id", "sessionId")
"""Keys of other clients. Several users may have the same value (`default`), so without a credential the transport
session is preferred."""
_BAGGAGE: Final = "baggage"
_OF_USER: Final = ("identity", "display_name", "username")
"""Attributes that identify a user object like Starlette's."""
_SIGNED: Final = b"AWS4-"
"""The beginning of a signature. Only its key id serves as the credential, which is not a secret. The app, which checks
signatures, is not called for withheld calls."""
_INDIFFERENT: Final = frozenset(
    b"accept accept-charset accept-encoding accept-language cache-control connection content-encoding content-length "
    b"content-type date expect host keep-alive pragma priority referer te trailer transfer-encoding upgrade "
    b"upgrade-insecure-requests via "
    b"last-event-id mcp-method mcp-name mcp-protocol-version mcp-session-id "
    b"b3 baggage request-id sentry-trace traceparent tracestate uber-trace-id x-amzn-trace-id x-cloud-trace-context "
    b"x-correlation-id x-request-id "
    b"cdn-loop cf-connecting-ip cf-connecting-ipv6 cf-ipcountry cf-ray cf-visitor forwarded true-client-ip "
    b"x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-prefix x-forwarded-proto x-forwarded-scheme "
    b"x-forwarded-server x-forwarded-ssl x-original-uri x-real-ip x-scheme "
    b"dpop idempotency-key x-request-start x-stainless-retry-count".split()
)
"""Headers that do not identify a user, or only repeat others: those of messages, transport, traces and proxies. `dpop`
proves the token in `authorization`, and differs in each request."""
_INDIFFERENT_KINDS: Final = (b"mcp-param-", b"sec-fetch-", b"x-b3-", b"x-datadog-", b"x-envoy-")
"""Prefixes of further such headers. The first one's headers repeat arguments."""

_OF_A_MESSAGE: Final = frozenset(
    b"accept accept-encoding cache-control connection content-encoding content-length content-type date expect "
    b"keep-alive pragma te trailer transfer-encoding last-event-id mcp-method mcp-name "
    b"b3 request-id sentry-trace traceparent tracestate uber-trace-id x-amzn-trace-id x-cloud-trace-context "
    b"x-correlation-id x-request-id cf-ray dpop idempotency-key x-request-start x-stainless-retry-count".split()
)
"""Headers that differ between messages of one client. All others are part of an identity, including addresses from a
proxy."""
_KINDS_OF_A_MESSAGE: Final = (b"mcp-param-", b"x-b3-", b"x-datadog-")
_NAMES_A_USER: Final = re.compile(
    rb"(?:\A|[-_])(?:user(?![-_]?agent)|account|tenant|customer|member|subject|principal|identity|email|login|org|"
    rb"organi[sz]ation|team|auth|token|jwt|cert|api[-_]?key)"
)
"""Beginnings of parts of header names that identify a user: `x-user`, `x-goog-iap-jwt-assertion`."""
_NO_USERS: Final = _INDIFFERENT.union(CREDENTIAL_HEADERS)


class Identity(NamedTuple):
    """Everything in a request with a call that could distinguish users, except the call's signature.

    `client`: a digest of the values common to all requests of a client (`client_of`). `about`: a digest of the rest of
    the message (`CallRequest.about`). `arguments`: the signature of all arguments if the settings ignore some in the
    comparison of calls; else empty.
    """

    client: bytes
    about: bytes
    arguments: bytes


class _Surroundings:
    """Values that distinguish callers independent of sessions: the parts of the server's URL, and the user that a
    middleware in front has authenticated."""

    def __init__(self, *parts: bytes) -> None:
        self._digest = _digest(parts)

    def opening(self) -> Iterable[bytes]:
        return (self._digest,)


def caller_of(scope: Mapping[str, Any], headers: Headers, meta: Mapping[str, Any], further: Set[bytes]) -> Lane:
    """Return the lane of a request. `scope`: the ASGI scope, `headers`: its headers by lower-case name, `further`:
    names of further headers that are credentials."""
    query = scope.get("query_string", b"")
    credential = credential_of(headers, query, further)
    is_known = credential != NO_CREDENTIAL
    named = _conversation(meta, CONVERSATIONS if SESSION in headers and not is_known else CONVERSATIONS + OF_OTHERS)
    baggage = meta.get(_BAGGAGE)
    if isinstance(baggage, str) and b"baggage" not in headers:
        headers = {**headers, b"baggage": baggage.encode("utf-8", "replace")}
    payload = {} if named is None else {"session_id": named}
    url = headers.get(b"host", b""), scope["path"].encode("utf-8", "surrogatepass"), query
    surroundings = _Surroundings(*url, *_authentication(scope.get("user")))
    lane = lane_of(credential, read_session_headers(headers), surroundings, payload)
    if user := _user(headers):
        lane = lane._replace(fingerprint=_digest((lane.fingerprint, *user)))
    session = headers.get(SESSION, b"").decode("latin-1")
    if not lane.named and session:
        return lane._replace(session=session_name(session), source=SESSION.decode())
    if lane.named and lane.credential != NO_CREDENTIAL and not headers.get(b"authorization", b"").startswith(_SIGNED):
        return lane
    fingerprint = _fingerprint(lane, headers, meta)
    if lane.named:  # anyone may use the name, so clients that differ count separately
        return lane._replace(fingerprint=fingerprint)
    return lane._replace(session=fingerprint.hex(), fingerprint=fingerprint)


def _conversation(meta: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    """Return the first name under these keys of `_meta`; None if there is none."""
    return next((value for key in keys if isinstance(value := meta.get(key), str) and value.strip()), None)


def client_of(scope: Mapping[str, Any]) -> bytes:
    """Return a digest that distinguishes the client of a request: URL, authentication, certificate, and every header
    except those of one message, including repeated ones."""
    headers = [(name.lower(), value) for name, value in scope.get("headers") or ()]
    told = sorted((name, value) for name, value in headers if not _is_of_a_message(name))
    path = scope["path"].encode("utf-8", "surrogatepass")
    who = tuple(_authentication(scope.get("user")))
    parts = (path, scope.get("query_string", b""), _certificate(scope), b"%d" % len(who), *who)
    return _digest((*parts, *(part for header in told for part in header)))


def _certificate(scope: Mapping[str, Any]) -> bytes:
    """Return the client's certificate, if the server provides it."""
    found = (scope.get("extensions") or {}).get("tls")
    return repr(found.get("client_cert_chain")).encode("utf-8", "replace") if isinstance(found, Mapping) else b""


def _is_of_a_message(name: bytes) -> bool:
    return name in _OF_A_MESSAGE or name.startswith(_KINDS_OF_A_MESSAGE)


def _user(headers: Headers) -> list[bytes]:
    """Return the headers whose names identify a user, with their values, and session cookies. Credentials are part of a
    lane anyway."""
    names = [name for name in sorted(headers) if name not in _NO_USERS and _NAMES_A_USER.search(name)]
    return [*(part for name in names for part in (name, headers[name])), *session_cookies(headers)]


def _authentication(user: object) -> Iterable[bytes]:
    """Yield whether a middleware in front has authenticated the user, and the user's names. So results are not repeated
    for another user, or after a token has expired."""
    if user is None:
        return
    yield b"known" if _attribute(user, "is_authenticated") else b"unknown"
    for name in _OF_USER:
        yield str(_attribute(user, name)).encode("utf-8", "surrogatepass")


def _attribute(user: object, name: str) -> object:
    """Return an attribute of a user; None if it is missing."""
    found: object = None
    with Boundary():  # Starlette's base class raises NotImplementedError
        found = getattr(user, name, None)
    return found if isinstance(found, str | int) else None


def _fingerprint(lane: Lane, headers: Headers, meta: Mapping[str, Any]) -> bytes:
    """Return a digest of the client's description in its requests."""
    client = meta.get(CLIENT)
    said = [client.get(key) for key in ("name", "version")] if isinstance(client, dict) else []
    telling = (name for name in sorted(headers) if _may_tell(name))
    return _digest((lane.fingerprint, dumps(said), *(part for name in telling for part in (name, headers[name]))))


def _may_tell(name: bytes) -> bool:
    """Whether a header of this name may identify the user."""
    return name not in _INDIFFERENT and not name.startswith(_INDIFFERENT_KINDS)


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        digest.update(b"%d:%b" % (len(part), part))
    return digest.digest()
