"""Find the lane of an exchange from its headers, query and body.

A lane is one conversation. Its key has the hash of the credential, the session id, the id of the agent or thread if the
client sends one, and always a fingerprint of the conversation's opening, so that parallel sub-agents of one session
never share a streak. If a named session opens with a harness's summary, the fingerprint leaves the summary out.

The first source with a session id counts: callfuse's own header or field, headers of harnesses and gateways, other
session headers, the body, trace baggage. Then come weak sources: a cache key or the fingerprint. A weak id is combined
with the fingerprint, so that it never joins two conversations.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from callfuse.dialects import session_ids
from callfuse.harness import begins_summary

T = TypeVar("T")

Headers = Mapping[bytes, bytes]
"""Headers by name, in lower case."""

CREDENTIAL_HEADERS: Final = (
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"x-goog-api-key",
    b"x-litellm-api-key",
    b"x-portkey-api-key",
    b"helicone-auth",
    b"cf-aig-authorization",
    b"ocp-apim-subscription-key",
    b"proxy-authorization",
    b"x-auth-token",
    b"x-access-token",
    b"apikey",
)
_OTHER_CREDENTIALS: Final = frozenset(CREDENTIAL_HEADERS) - {b"authorization"}
_COOKIE: Final = b"cookie"
_IN_NAMES_OF_SESSIONS: Final = (b"sess", b"sid", b"auth", b"token", b"jwt")
"""A cookie with one of these in its name identifies a user. Others may differ in each request: counters of visits,
marks of proxies, and CSRF tokens."""
_IN_NAMES_OF_FORMS: Final = (b"csrf", b"xsrf")
_KEY_IN_QUERY: Final = re.compile(rb"(?:\A|&)key=([^&]+)")
"""Google's clients may send the credential in the query."""
_AWS: Final = b"AWS4-"
_AWS_KEY: Final = re.compile(rb"Credential=([^/,\s]+)")
"""The key id of an AWS signature. The signature itself differs in each request."""

OWN_HEADER: Final = b"x-callfuse-session-id"
VENDOR_HEADERS: Final = (
    b"x-claude-code-session-id",
    b"x-litellm-session-id",
    b"x-litellm-trace-id",
    b"x-opencode-session",
    b"x-roo-task-id",
    b"helicone-session-id",
    b"x-portkey-trace-id",
)
CODEX_HEADERS: Final = (b"session-id", b"session_id", b"conversation_id")
"""Read for Codex only: other clients may use these names for anything."""
SHARED_HEADERS: Final = (b"x-session-id", b"x-session-affinity")
_OTHER_VENDOR: Final = re.compile(rb"x-(?!(?:.*-)?parent-).+-session-id")
_OF_PARENT: Final = re.compile(rb"x-(?:.*-)?parent-session-id")
"""OpenCode's sub-agents have sessions of their own, and send the session of the agent that started them."""

AGENT_HEADERS: Final = (b"x-claude-code-parent-agent-id", b"x-claude-code-agent-id")
CODEX_AGENT_HEADERS: Final = (b"thread-id",)
SUB_AGENT_HEADERS: Final = (*AGENT_HEADERS, b"x-openai-subagent", b"x-codex-parent-thread-id")
"""Claude Code and Codex send these only with requests of agents that a model has started."""

_BAGGAGE: Final = b"baggage"
_IN_BAGGAGE: Final = re.compile(rb"(?:\A|,)\s*session\.id\s*=([^,;]+)")
"""https://www.w3.org/TR/baggage/#header-content"""

_SESSION_HEADERS: Final = frozenset(
    {OWN_HEADER, *VENDOR_HEADERS, *CODEX_HEADERS, *SHARED_HEADERS, *AGENT_HEADERS, *CODEX_AGENT_HEADERS}
)
_USER_AGENT: Final = b"user-agent"
_TELLING: Final = frozenset({*_SESSION_HEADERS, *SUB_AGENT_HEADERS, _BAGGAGE})
"""The headers that identify session and agent, except those that are matched by prefix or by ending."""
_SESSION_ID: Final = b"-session-id"
"""The end of the names of session headers of other vendors."""
OWN_PREFIX: Final = b"x-callfuse-"

MOST_KNOWN: Final = 1024
"""The most results that are cached; at this number, the cache is cleared."""
LONGEST_KNOWN: Final = 4096
"""The most bytes of headers whose result is cached; a client's are a few hundred."""

DIGEST_SIZE: Final = 16
"""The bytes of each digest: of credentials, fingerprints, and long or unprintable ids."""
NO_CREDENTIAL: Final = blake2b(b"", digest_size=DIGEST_SIZE).digest()
"""The digest of a request without credentials."""
NO_HEADERS: Final = frozenset[bytes]()

FINGERPRINT: Final = "fingerprint"
WEAK: Final = frozenset({session_ids.CHAIN, session_ids.CACHE_KEY, FINGERPRINT})
"""Sources that do not identify one session: the id in a chain changes, the others may be shared by sessions."""
_BELOW_CHAIN: Final = WEAK | {"baggage"}

MAX_ID: Final = 4096
"""The most characters of an id; the rest is cut off."""
LONGEST_SHOWN: Final = 200
"""The most characters of an id that logs show unchanged."""
_NamedSession = tuple[str, str]
"""A source, and the session's id from it in the form for logs and keys."""


class Opened(Protocol):
    """A request whose opening texts make the fingerprint of its lane."""

    def opening(self) -> Iterable[bytes]:
        """Return the texts that identify the conversation."""
        ...


class Lane(NamedTuple):
    """The key of a conversation in the ledger. `session` is its name in logs: the client's id, or the fingerprint.

    `source` is where the id was found: the name of a header, the path of a field, `baggage` or `fingerprint`. `agent`
    is empty if the client sends no id of an agent. `credential` and `fingerprint` are digests.
    """

    credential: bytes
    session: str
    fingerprint: bytes
    source: str
    agent: str = ""

    @property
    def named(self) -> bool:
        """Whether the client has sent a session id."""
        return self.source not in WEAK

    @property
    def owner(self) -> str:
        """The name of the session whose settings apply to the lane. Without a credential, any client can send any
        session id, so the name then includes this conversation's fingerprint."""
        if self.credential != NO_CREDENTIAL or not self.named:
            return self.session
        return f"{self.session}.{self.fingerprint.hex()}"

    @property
    def tag(self) -> str:
        """The name of the lane in logs, within its session."""
        fingerprint = self.fingerprint.hex()
        return f"{self.agent}.{fingerprint}" if self.agent else fingerprint


class SessionHeaders(NamedTuple):
    """The session and the agent according to a request's headers.

    `own`, `named`, `baggage`: the id of the session in callfuse's own header, in the first of the other headers that
    has one, and in the trace baggage, each with its source; empty if there is none. `agent`: as in `Lane`.
    `is_sub_agent`: a model has started this agent, so that its user messages were written by a model. `parent`: the
    session that has started this one. `as_sent`: the values of the headers that name session and agent. `settings`: the
    headers with callfuse's prefix.
    """

    own: tuple[_NamedSession, ...] = ()
    named: tuple[_NamedSession, ...] = ()
    baggage: tuple[_NamedSession, ...] = ()
    agent: str = ""
    is_sub_agent: bool = False
    parent: str = ""
    as_sent: tuple[bytes, ...] = ()
    settings: tuple[tuple[bytes, bytes], ...] = ()


NO_SESSION_HEADERS: Final = SessionHeaders()


def read_session_headers(headers: Headers) -> SessionHeaders:
    """Read session and agent from headers."""
    baggage = _IN_BAGGAGE.search(headers.get(_BAGGAGE, b""))
    return SessionHeaders(
        _first_id([(OWN_HEADER.decode(), headers.get(OWN_HEADER))]),
        _first_id(_header_sources(headers)),
        _first_id([("baggage", baggage and baggage[1])]),
        _agent(headers),
        any(_id_text(headers.get(name)) for name in SUB_AGENT_HEADERS),
        next((session_name(headers[name]) for name in sorted(filter(_OF_PARENT.fullmatch, headers))), ""),
        tuple([headers[name] for name in sorted(_SESSION_HEADERS & headers.keys())]),
        tuple(sorted((name, value) for name, value in headers.items() if name.startswith(OWN_PREFIX))),
    )


@dataclass(slots=True, eq=False)
class KnownHeaders:
    """Reads headers like `read_session_headers` and caches the results, because a client sends the same headers with
    each request. No cached header contains a credential."""

    _names: dict[tuple[Any, ...], tuple[bytes, ...]] = field(default_factory=dict)
    _said: dict[tuple[Any, ...], SessionHeaders] = field(default_factory=dict)

    def read(self, headers: Headers) -> SessionHeaders:
        """Return session and agent from these headers."""
        all_names = tuple(headers)
        names = self._names.get(all_names)
        if names is None:
            names = _telling_names(headers)
            _keep(self._names, all_names, names, all_names)
        if not names:
            return NO_SESSION_HEADERS
        values = tuple(map(headers.__getitem__, names))
        said = self._said.get((names, values))
        if said is None:
            said = read_session_headers(dict(zip(names, values, strict=True)))
            _keep(self._said, (names, values), said, names + values)
        return said


def _telling_names(headers: Headers) -> tuple[bytes, ...]:
    """Return the names of the headers that `read_session_headers` reads; none if there is only a user agent."""
    names = {name for name in headers if name in _TELLING or name.startswith(OWN_PREFIX) or name.endswith(_SESSION_ID)}
    return tuple(sorted(names | ({_USER_AGENT} & headers.keys() if names else set())))


def _keep(known: dict[tuple[Any, ...], T], key: tuple[Any, ...], value: T, texts: tuple[bytes, ...]) -> None:
    """Cache a value that was read from these texts, unless they are long."""
    if len(known) >= MOST_KNOWN:
        known.clear()
    if sum(map(len, texts)) <= LONGEST_KNOWN:
        known[key] = value


def lane_of(
    credential: bytes, said: SessionHeaders, request: Opened, payload: session_ids.Payload = session_ids.NOTHING
) -> Lane:
    """Find the lane of a request. `credential`: the result of `credential_of`. `said`: that of `read_session_headers`.
    `payload`: the parsed body."""
    opening = [*request.opening()]
    fingerprint = _fingerprint(opening)
    has_fields = not session_ids.FIELDS.isdisjoint(payload)
    ids = _first_id(_sources(said, payload)) if has_fields else said.own or said.named or said.baggage
    source, session = ids[0] if ids else (FINGERPRINT, "")
    if source in WEAK:  # after a cache key, if there is one
        session = f"{session}.{fingerprint.hex()}" if source == session_ids.CACHE_KEY else fingerprint.hex()
    elif any(map(begins_summary, opening)):  # each compaction writes another one
        fingerprint = _fingerprint([text for text in opening if not begins_summary(text)])
    return Lane(credential, session, fingerprint, source, said.agent)


def credential_of(headers: Headers, query: bytes = b"", further: Set[bytes] = NO_HEADERS) -> bytes:
    """Return the digest of a request's credentials; `NO_CREDENTIAL` if it has none. `further`: names of headers that
    are credentials too, in lower case."""
    key = headers.get(b"authorization", b"")
    if query or key.startswith(_AWS) or not _OTHER_CREDENTIALS.isdisjoint(headers):
        key = _credentials(headers, query)
    if further or (not key and _COOKIE in headers):
        key = _further_credentials(key, headers, further)
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


def chain_lane(lane: Lane, opening: Iterable[bytes]) -> Lane:
    """Return the lane of the next request in a chain of stored answers, whose conversation opens with these texts."""
    fingerprint = _fingerprint(opening)
    if lane.source not in _BELOW_CHAIN:
        return lane._replace(fingerprint=fingerprint)
    return lane._replace(fingerprint=fingerprint, session=fingerprint.hex(), source=session_ids.CHAIN)


def _fingerprint(opening: Iterable[bytes]) -> bytes:
    """Return a digest of the texts with which a conversation opens."""
    text = b"\x00".join(opening)
    if session_ids.BILLING in text[:64]:
        text = session_ids.without_billing(text)
    return blake2b(text, digest_size=DIGEST_SIZE).digest()


def _credentials(headers: Headers, query: bytes) -> bytes:
    """Collect the credentials of vendors and gateways in headers and query, joined by NUL."""
    keys = [headers[name] for name in CREDENTIAL_HEADERS if name in headers]
    if keys and keys[0].startswith(_AWS) and (signed := _AWS_KEY.search(keys[0])):
        keys[0] = signed[1]
    if query:
        keys += _KEY_IN_QUERY.findall(query)
    return b"\x00".join(keys)


def _further_credentials(key: bytes, headers: Headers, further: Set[bytes]) -> bytes:
    """Return the credentials `key` with the headers that a setting names; if there are none at all, the session
    cookies. They are joined by newlines, which no header has, so the result is never the `key` of another client."""
    named = [name + b"\n" + headers[name] for name in sorted(further) if headers.get(name)]
    if not (key or named):
        named = session_cookies(headers)
    return b"\n".join([key, *named]) if named else key


def session_cookies(headers: Headers) -> list[bytes]:
    """Return the cookies (`name=value`) whose names suggest that they identify a user, sorted."""
    cookies = map(bytes.strip, headers.get(_COOKIE, b"").split(b";"))
    return sorted(filter(_is_of_session, cookies))


def _is_of_session(cookie: bytes) -> bool:
    """Whether the name of a cookie (`name=value`) suggests that it identifies a user."""
    name, _, value = cookie.partition(b"=")
    name = name.lower()
    is_named = any(word in name for word in _IN_NAMES_OF_SESSIONS)
    return bool(value) and is_named and not any(word in name for word in _IN_NAMES_OF_FORMS)


def _first_id(sources: Iterable[session_ids.Source]) -> tuple[_NamedSession, ...]:
    """Return the first of these sources that has an id; empty if no source has."""
    for source, value in sources:
        if id_ := _id_text(value):
            return ((source, _loggable_id(id_)),)
    return ()


def _sources(said: SessionHeaders, payload: session_ids.Payload) -> Iterator[session_ids.Source]:
    """Yield the sources of a session id, in order of precedence, with the value if there is one."""
    yield from said.own
    yield session_ids.callfuse_id(payload)
    yield from said.named
    yield from session_ids.known_ids(payload)
    yield from said.baggage
    yield session_ids.cache_key(payload)


def _header_sources(headers: Headers) -> Iterator[session_ids.Source]:
    """Yield the headers of harnesses and gateways, then other session headers."""
    for name in VENDOR_HEADERS:
        yield name.decode(), headers.get(name)
    for name in sorted(filter(_OTHER_VENDOR.fullmatch, headers)):
        yield "x-*-session-id", headers[name]
    for name in CODEX_HEADERS if _is_codex(headers) else ():
        yield name.decode(), headers.get(name)
    for name in SHARED_HEADERS:
        yield name.decode(), headers.get(name)


def _agent(headers: Headers) -> str:
    """Return the id of the agent within its session; empty if the client sends none."""
    names = AGENT_HEADERS + CODEX_AGENT_HEADERS if _is_codex(headers) else AGENT_HEADERS
    return ".".join(_loggable_id(id_) for name in names if (id_ := _id_text(headers.get(name))))


def _is_codex(headers: Headers) -> bool:
    """Whether the client is Codex: `codex_cli_rs/0.99.0 (...)`, `codex_exec/...`, `Codex Desktop/...`."""
    return headers.get(_USER_AGENT, b"")[:5].lower() == b"codex"


def _id_text(value: Any) -> str:
    """Decode, strip and cut an id; empty for a value that is not a text."""
    if isinstance(value, bytes):
        try:
            value = value[:MAX_ID].decode()
        except UnicodeDecodeError:
            value = value[:MAX_ID].decode("latin-1")
    return value[:MAX_ID].strip() if isinstance(value, str) else ""


def session_name(id_: str | bytes) -> str:
    """Return the name in logs and keys of a session with this id: the id if printable and short, else a digest."""
    return _loggable_id(_id_text(id_))


def _loggable_id(id_: str) -> str:
    """Return an id in a form for logs and keys: unchanged if it is printable and short, else a digest of it."""
    if len(id_) <= LONGEST_SHOWN and id_.isprintable():
        return id_
    return blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).hexdigest()
