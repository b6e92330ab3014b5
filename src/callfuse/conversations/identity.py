"""Which lane an exchange belongs to.

A lane is one conversation: its session id, where the client sends one, the agent's or thread's id, where it sends that,
and always the conversation's own fingerprint, so that parallel sub-agents of one session never share a streak. All of
it is scoped by a hash of the credential.

A session id is looked for in this order, and keeps the name of its source: callfuse's own; the headers of harnesses and
gateways; session headers of no vendor; the body; the trace's baggage. What is left is weak: a cache key or the
fingerprint. A weak id stands together with the fingerprint only, so that it never joins two conversations.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from callfuse.dialects import session_ids
from callfuse.dialects.base import Request

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
)
_MORE_CREDENTIALS: Final = frozenset(CREDENTIAL_HEADERS) - {b"authorization"}
_KEY_IN_QUERY: Final = re.compile(rb"(?:\A|&)key=([^&]+)")
"""Where Google's clients may put the credential."""
_AWS: Final = b"AWS4-"
_AWS_KEY: Final = re.compile(rb"Credential=([^/,\s]+)")
"""Who has signed for AWS. The rest, the signature, is another with each request."""

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
"""Codex's. In anybody else's requests such a name may mean anything."""
SHARED_HEADERS: Final = (b"x-session-id", b"x-session-affinity")
_OTHER_VENDOR: Final = re.compile(rb"x-(?!(?:.*-)?parent-).+-session-id")

AGENT_HEADERS: Final = (b"x-claude-code-parent-agent-id", b"x-claude-code-agent-id")
CODEX_AGENT_HEADERS: Final = (b"thread-id",)
SUB_AGENT_HEADERS: Final = (*AGENT_HEADERS, b"x-openai-subagent", b"x-codex-parent-thread-id")
"""Claude Code and Codex send these with the requests of agents that a model has started, and with no others."""

_BAGGAGE: Final = b"baggage"
_IN_BAGGAGE: Final = re.compile(rb"(?:\A|,)\s*session\.id\s*=([^,;]+)")
"""https://www.w3.org/TR/baggage/#header-content"""

_TELLING: Final = frozenset(
    {OWN_HEADER, *VENDOR_HEADERS, *CODEX_HEADERS, *SHARED_HEADERS, *AGENT_HEADERS, *CODEX_AGENT_HEADERS, _BAGGAGE}
)

_ORDINARY: Final = frozenset(
    b"host user-agent accept accept-encoding accept-language connection content-type content-length content-encoding "
    b"transfer-encoding authorization x-api-key api-key x-goog-api-key x-goog-api-client openai-organization "
    b"openai-project openai-beta anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-app "
    b"http-referer x-title x-stainless-arch x-stainless-async x-stainless-helper-method x-stainless-lang "
    b"x-stainless-os x-stainless-package-version x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime "
    b"x-stainless-runtime-version x-stainless-timeout x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip "
    b"x-request-id traceparent tracestate".split()
)
"""What clients, SDKs and proxies mostly send. It saves several looks at each name."""

FINGERPRINT: Final = "fingerprint"
WEAK: Final = frozenset({session_ids.CHAIN, session_ids.CACHE_KEY, FINGERPRINT})
"""The sources that name no session: the place in a chain moves on, the others need not be the session's alone."""
_BELOW_CHAIN: Final = WEAK | {"baggage"}

DIGEST_SIZE: Final = 16
"""Bytes of whatever is hashed: credential, fingerprint, odd ids."""
MAX_ID: Final = 4096
"""Characters of an id that are looked at."""
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9._:-]{8,200}")


class Lane(NamedTuple):
    """The ledger's key. `session` is what logs call it: an id that the client has given, or one with the fingerprint.

    `source` is where the id was found: a header's name, a field's path, `baggage` or `fingerprint`. `agent` is empty
    where the client does not tell its agents apart.
    """

    credential: bytes
    session: str
    fingerprint: bytes
    source: str
    agent: str = ""

    @property
    def named(self) -> bool:
        """Whether the client gave the session its id."""
        return self.source not in WEAK

    @property
    def tag(self) -> str:
        """What logs call the lane, within its session."""
        fingerprint = self.fingerprint.hex()
        return f"{self.agent}.{fingerprint}" if self.agent else fingerprint


def are_ordinary(headers: Headers) -> bool:
    """Whether nothing but what nearly all clients send is among them: then none of them names a session or an agent,
    none is callfuse's own, and none signs the body."""
    return _ORDINARY.issuperset(headers) and not headers.get(b"authorization", b"").startswith(_AWS)


def lane_of(
    headers: Headers,
    request: Request,
    query: bytes = b"",
    payload: session_ids.Payload = session_ids.NOTHING,
    *,
    ordinary: bool = False,
) -> Lane:
    """The lane of a request with these headers (`ordinary`: see `are_ordinary`), this query and this parsed body."""
    key = headers.get(b"authorization", b"")
    if query or key.startswith(_AWS) or not _MORE_CREDENTIALS.isdisjoint(headers):
        key = _credentials(headers, query)
    credential = blake2b(key, digest_size=DIGEST_SIZE).digest()
    fingerprint = _fingerprint(request.opening())
    told = not ordinary and _may_tell(headers)
    if not told and session_ids.FIELDS.isdisjoint(payload):
        return Lane(credential, fingerprint.hex(), fingerprint, FINGERPRINT)
    source, session = _session(headers if told else {}, payload)
    if source in WEAK:
        session = _with_fingerprint(source, session, fingerprint)
    return Lane(credential, session, fingerprint, source, _agent(headers) if told else "")


def is_sub_agent(headers: Headers) -> bool:
    """Whether a model has started the agent, and so has written what stands there as a user's message."""
    return any(_text(headers.get(name)) for name in SUB_AGENT_HEADERS)


def lane_at(lane: Lane, opening: Iterable[bytes]) -> Lane:
    """The lane of a request of the same session that goes on in a chain, and opens with this."""
    fingerprint = _fingerprint(opening)
    if lane.source not in _BELOW_CHAIN:
        return lane._replace(fingerprint=fingerprint)
    return lane._replace(fingerprint=fingerprint, session=fingerprint.hex(), source=session_ids.CHAIN)


def _fingerprint(opening: Iterable[bytes]) -> bytes:
    """A digest of the texts that a conversation opens with, each apart from the next."""
    text = b"\x00".join(opening)
    if session_ids.BILLING in text[:64]:
        text = session_ids.without_billing(text)
    return blake2b(text, digest_size=DIGEST_SIZE).digest()


def _credentials(headers: Headers, query: bytes) -> bytes:
    """By what the vendor, or a gateway, knows the client; each apart from the next."""
    keys = [headers[name] for name in CREDENTIAL_HEADERS if name in headers]
    if keys and keys[0].startswith(_AWS) and (signed := _AWS_KEY.search(keys[0])):
        keys[0] = signed[1]
    if query:
        keys += _KEY_IN_QUERY.findall(query)
    return b"\x00".join(keys)


def _may_tell(headers: Headers) -> bool:
    """Whether a header names a session or an agent. Loops in C only."""
    return not _TELLING.isdisjoint(headers) or b"-session-id" in b" ".join(headers)


def _session(headers: Headers, payload: session_ids.Payload) -> tuple[str, str]:
    """The first source that names a session, and the id."""
    for source, value in _sources(headers, payload):
        if given := _text(value):
            return source, _plain(given)
    return FINGERPRINT, ""


def _sources(headers: Headers, payload: session_ids.Payload) -> Iterator[session_ids.Source]:
    """Where a session may be named, in the order in which it counts."""
    yield OWN_HEADER.decode(), headers.get(OWN_HEADER)
    yield session_ids.callfuse_id(payload)
    if headers:
        yield from _header_sources(headers)
    yield from session_ids.known_ids(payload)
    if _BAGGAGE in headers and (found := _IN_BAGGAGE.search(headers[_BAGGAGE])):
        yield "baggage", found[1]
    yield session_ids.cache_key(payload)


def _header_sources(headers: Headers) -> Iterator[session_ids.Source]:
    """The headers of harnesses and gateways, and those of no vendor."""
    for name in VENDOR_HEADERS:
        yield name.decode(), headers.get(name)
    for name in sorted(filter(_OTHER_VENDOR.fullmatch, headers)):
        yield "x-*-session-id", headers[name]
    for name in CODEX_HEADERS if _is_codex(headers) else ():
        yield name.decode(), headers.get(name)
    for name in SHARED_HEADERS:
        yield name.decode(), headers.get(name)


def _with_fingerprint(source: str, session: str, fingerprint: bytes) -> str:
    """The id of a session that goes by its conversation."""
    return f"{session}.{fingerprint.hex()}" if source == session_ids.CACHE_KEY else fingerprint.hex()


def _agent(headers: Headers) -> str:
    """Which of the session's agents this is."""
    names = AGENT_HEADERS + CODEX_AGENT_HEADERS if _is_codex(headers) else AGENT_HEADERS
    return ".".join(_plain(given) for name in names if (given := _text(headers.get(name))))


def _is_codex(headers: Headers) -> bool:
    """Whether Codex asks: `codex_cli_rs/0.99.0 (...)`, `codex_exec/...`, `Codex Desktop/...`."""
    return headers.get(b"user-agent", b"")[:5].lower() == b"codex"


def _text(value: Any) -> str:
    """An id as a text; nothing for what is none."""
    if isinstance(value, bytes):
        return value[:MAX_ID].decode("latin-1").strip()
    return value[:MAX_ID].strip() if isinstance(value, str) else ""


def _plain(given: str) -> str:
    """An id that can be logged: itself, or a digest of it."""
    if _PLAIN_ID.fullmatch(given):
        return given
    return blake2b(given.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).hexdigest()
