"""Who is who: lanes are scoped by credential, session, agent and conversation, and hold no secret."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.asgi import headers as asgi_headers
from callfuse.conversations import identity
from callfuse.conversations.identity import (
    CODEX_HEADERS,
    CREDENTIAL_HEADERS,
    FINGERPRINT,
    LONGEST_KNOWN,
    MOST_KNOWN,
    NO_CREDENTIAL,
    OWN_HEADER,
    SUB_AGENT_HEADERS,
    Headers,
    KnownHeaders,
    Lane,
    Opened,
    chain_lane,
    credential_of,
    read_session_headers,
)
from callfuse.dialects import DIALECTS
from callfuse.dialects.base import Request
from callfuse.dialects.session_ids import CACHE_KEY, CHAIN
from tests.conversations.talks import request
from tests.support.examples import more_examples

HELLO = request("user: Find it.")
KEY = {b"authorization": b"Bearer key-of-one-tenant"}
CODEX = {b"user-agent": b"codex_cli_rs/0.99.0 (Mac OS 26.0.1; arm64) Terminal"}
UUID = "01a0800c-3119-7273-8dfb-387f230c1233"
LEGACY = f"user_{'d' * 64}_account__session_{UUID}"
HASHED = re.compile("[0-9a-f]{32}")


def lane_of(headers: Headers, of: Opened, body: dict[str, Any] | None = None) -> Lane:
    """The lane of a request with these headers alone."""
    return identity.lane_of(credential_of(headers), read_session_headers(headers), of, body or {})


def lane(headers: dict[bytes, bytes] | None = None, body: dict[str, Any] | None = None, of: Request = HELLO) -> Lane:
    """The lane of a request of one tenant."""
    return lane_of(KEY | (headers or {}), of, body)


def session_of(one: Lane) -> tuple[bytes, str]:
    """The session that a lane belongs to."""
    return one.credential, one.session


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to name a session: where, and with which id."""

    source: str
    id: str
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


def header(name: str, source: str = "") -> Rung:
    """An id in a header."""
    return Rung(source or name, f"id.of.{name}", CODEX | {name.encode(): f" id.of.{name} ".encode()})


def in_body(source: str, value: Any, id_: str) -> Rung:
    """An id in a field, by its path."""
    first, _, rest = source.partition(".")
    return Rung(source, id_, body={first: {rest: value} if rest else value})


LADDER = (
    header("x-callfuse-session-id"),
    in_body("metadata.callfuse_session_id", "id-for-callfuse", "id-for-callfuse"),
    header("x-claude-code-session-id"),
    header("x-litellm-session-id"),
    header("x-litellm-trace-id"),
    header("x-opencode-session"),
    header("x-roo-task-id"),
    header("helicone-session-id"),
    header("x-portkey-trace-id"),
    header("x-acme-session-id", "x-*-session-id"),
    header("session-id"),
    header("session_id"),
    header("conversation_id"),
    header("x-session-id"),
    header("x-session-affinity"),
    in_body("metadata.session_id", "id-in-metadata", "id-in-metadata"),
    in_body("litellm_metadata.session_id", "id-in-litellm-metadata", "id-in-litellm-metadata"),
    in_body("litellm_session_id", "id-for-litellm", "id-for-litellm"),
    in_body("litellm_trace_id", "id-of-litellm-trace", "id-of-litellm-trace"),
    in_body("session_id", "id-in-the-body", "id-in-the-body"),
    in_body("metadata.user_id", LEGACY, UUID),
    in_body("conversation", "conv_12345678", "conv_12345678"),
    in_body(CHAIN, "resp_12345678", lane().session),
    Rung("baggage", "id-in-baggage", {b"baggage": b"userId=alice,session.id=id-in-baggage;ttl=1"}),
    in_body(CACHE_KEY, "id-of-a-cache", f"id-of-a-cache.{lane().session}"),
    Rung(FINGERPRINT, lane().session),
)
"""Every way, in the order in which they count."""


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.source)
def test_each_way_to_name_a_session_is_known(rung: Rung) -> None:
    """By itself it gives the session its id, and says where that comes from."""
    found = lane(rung.headers, rung.body)
    assert (found.source, found.session) == (rung.source, rung.id)
    assert found.named is (rung.source not in (CHAIN, CACHE_KEY, FINGERPRINT))
    assert found.fingerprint == lane().fingerprint


@pytest.mark.parametrize("at", range(len(LADDER)), ids=lambda at: LADDER[at].source)
def test_each_way_counts_before_all_below_it(at: int) -> None:
    """The first that is there is taken, whatever else is; header order says nothing."""
    headers: dict[bytes, bytes] = {}
    body: dict[str, Any] = {}
    for rung in reversed(LADDER[at:]):
        headers |= rung.headers
        for key, value in rung.body.items():
            body[key] = body.get(key, {}) | value if isinstance(value, dict) else value
    for sent in (headers, dict(reversed(headers.items()))):
        found = lane(sent, body)
        assert (found.source, found.session) == (LADDER[at].source, LADDER[at].id)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.source)
def test_an_empty_id_is_none(rung: Rung) -> None:
    """What is empty or blank leaves the word to the next."""
    headers = {name: b"  " for name in rung.headers if name != b"user-agent"}
    body = {key: dict.fromkeys(value, "") if isinstance(value, dict) else "" for key, value in rung.body.items()}
    assert lane(headers, body) == lane()


def test_a_conversation_is_its_own_session() -> None:
    """Without an id the fingerprint names it: system prompt and first user message."""
    found = lane()
    assert not found.named
    assert found.session == found.fingerprint.hex() == found.tag
    assert lane(of=request("user: Find it.", "a=x", "user: And on.")) == found
    assert lane(of=request("user: Find that.")) != found


def test_a_session_id_is_a_name_and_no_more() -> None:
    """Parallel conversations of one session have lanes of their own, and the session in common."""
    headers = {b"x-callfuse-session-id": b"session-1"}
    one, other = lane(headers), lane(headers, of=request("user: Another."))
    assert one.session == other.session == "session-1"
    assert session_of(one) == session_of(other)
    assert one.tag != other.tag
    assert one != other
    assert one != lane()


# --- what the vendors send


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        (LEGACY, UUID),
        (f"user_{'d' * 64}_account_{UUID}_session_{UUID.upper()}", UUID.upper()),
        (json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": UUID}), UUID),
        (json.dumps({"session_id": UUID, "parent_session_id": "p" * 36}), UUID),
    ],
)
def test_claude_codes_user_id_holds_the_session(user_id: str, session: str) -> None:
    """As a text with the session at its end, or as JSON."""
    found = lane(body={"metadata": {"user_id": user_id}})
    assert (found.source, found.session, found.named) == ("metadata.user_id", session, True)


@pytest.mark.parametrize(
    "user_id",
    [
        "user-1234567890",
        "alice@example.org",
        UUID,
        "user_1_session_tonight",
        f"{LEGACY}-and-more",
        "{",
        "{}",
        '{"device_id": "12345678"}',
        '{"session_id": 12345678}',
        '{"session_id": ["12345678"]}',
        '["session_id"]',
        f'{{"pad": "{"x" * 5000}", "session_id": "12345678"}}',
        None,
        12345678,
        {"session_id": "12345678"},
    ],
)
def test_another_user_id_is_a_person(user_id: Any) -> None:
    """Who has many sessions."""
    assert lane(body={"metadata": {"user_id": user_id}}) == lane()


PERSONS: list[tuple[dict[bytes, bytes], dict[str, Any]]] = [
    ({}, {"user": "user-12345678"}),
    ({}, {"safety_identifier": "user-12345678"}),
    ({b"x-forwarded-for": b"203.0.113.7", b"x-real-ip": b"203.0.113.7", b"forwarded": b"for=203.0.113.7"}, {}),
    ({b"x-user-id": b"user-12345678", b"cookie": b"session=12345678"}, {}),
]


@pytest.mark.parametrize(("headers", "body"), PERSONS)
def test_a_person_is_no_session(headers: dict[bytes, bytes], body: dict[str, Any]) -> None:
    """Neither the user nor the address is read."""
    assert lane(headers, body) == lane()


@pytest.mark.parametrize("agent", [b"codex_cli_rs/0.99.0", b"codex_exec/0.1", b"Codex Desktop/1", b"codex-tui/0.140"])
@pytest.mark.parametrize("name", CODEX_HEADERS)
def test_codex_names_its_sessions(agent: bytes, name: bytes) -> None:
    """In each of its forms."""
    found = lane({b"user-agent": agent, name: UUID.encode()})
    assert (found.source, found.session) == (name.decode(), UUID)


@pytest.mark.parametrize("agent", [b"OpenAI/Python 2.0", b"my-codex/1", b"", None])
@pytest.mark.parametrize("name", [*CODEX_HEADERS, b"thread-id"])
def test_codexs_headers_are_codexs(agent: bytes | None, name: bytes) -> None:
    """Of another client they may mean anything."""
    sent = {} if agent is None else {b"user-agent": agent}
    assert lane(sent | {name: UUID.encode()}) == lane()


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        (b"x-acme-session-id", True),
        (b"x-a-b-c-session-id", True),
        (b"x-claude-remote-session-id", True),
        (b"x-parent-session-id", False),
        (b"x-parent-acme-session-id", False),
        (b"x-acme-parent-session-id", False),
        (b"acme-session-id", False),
        (b"x-acme-session-id-token", False),
        (b"x--session-id", False),
    ],
)
def test_other_vendors_session_headers(name: bytes, taken: bool) -> None:
    """Any but the parent's."""
    assert (lane({name: b"id-of-acme"}).source == "x-*-session-id") is taken


def test_of_several_vendors_the_first_by_name_is_taken() -> None:
    """So that the order of headers, which proxies change, says nothing."""
    sent = {b"x-zeta-session-id": b"id-of-zeta", b"x-acme-session-id": b"id-of-acme"}
    assert lane(sent).session == lane(dict(reversed(sent.items()))).session == "id-of-acme"


@pytest.mark.parametrize(
    ("baggage", "session"),
    [
        (b"session.id=12345678", "12345678"),
        (b"a=b, session.id = 12345678 ;x=y,c=d", "12345678"),
        (b"mysession.id=12345678", None),
        (b"a=session.id=12345678", None),
        (b"session.id", None),
        (b"session.id=", None),
        (b"\xff,;=,,session", None),
    ],
)
def test_baggage_may_hold_the_session(baggage: bytes, session: str | None) -> None:
    """As a member of the W3C's list."""
    found = lane({b"baggage": baggage})
    assert (found.session if found.named else None) == session


@pytest.mark.parametrize("value", ["conv_12345678", {"id": "conv_12345678"}])
def test_a_conversation_goes_by_its_id(value: Any) -> None:
    """Which may stand alone or in an object."""
    assert lane(body={"conversation": value}).session == "conv_12345678"


def test_a_cache_key_never_joins_conversations() -> None:
    """It tells equal beginnings apart, but neither one session from another nor two conversations as one."""
    one, same, other_key = (lane(body={CACHE_KEY: key}) for key in ("cache-of-app", "cache-of-app", "another-cache"))
    other = lane(body={CACHE_KEY: "cache-of-app"}, of=request("user: Another."))
    assert one == same
    assert len({one, other_key, other, lane()}) == len({session_of(found) for found in (one, other_key, other)}) + 1
    assert not any(found.named for found in (one, other_key, other))


# --- agents

AGENTS: list[tuple[dict[bytes, bytes], str]] = [
    ({b"x-claude-code-agent-id": b"agent-0001"}, "agent-0001"),
    (
        {b"x-claude-code-agent-id": b"agent-0001", b"x-claude-code-parent-agent-id": b"parent-01"},
        "parent-01.agent-0001",
    ),
    (CODEX | {b"thread-id": UUID.encode()}, UUID),
]


@pytest.mark.parametrize(("headers", "agent"), AGENTS)
def test_an_agents_id_is_part_of_the_lane(headers: dict[bytes, bytes], agent: str) -> None:
    """Agents that begin alike are told apart, and have their session in common."""
    session = {b"x-callfuse-session-id": b"session-1"}
    found, main = lane(headers | session), lane(session)
    assert (found.agent, main.agent) == (agent, "")
    assert found.tag == f"{agent}.{found.fingerprint.hex()}"
    assert found != main
    assert session_of(found) == session_of(main)
    assert lane(headers).session == lane().session


def test_an_odd_agent_id_is_hashed() -> None:
    """It stands in logs, too."""
    assert HASHED.fullmatch(lane({b"x-claude-code-agent-id": b"name\tteam"}).agent)
    assert lane({b"x-claude-code-agent-id": b"name@team"}).agent == "name@team"
    assert lane({b"x-claude-code-agent-id": b" "}).agent == ""


# --- the credential

CREDENTIALS = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-litellm-api-key",
    "x-portkey-api-key",
    "helicone-auth",
    "cf-aig-authorization",
    "ocp-apim-subscription-key",
    "proxy-authorization",
    "x-auth-token",
    "x-access-token",
    "apikey",
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credentials_scope_a_lane(name: str) -> None:
    """No tenant reaches another's, and no credential stands in a lane."""
    session = {b"x-callfuse-session-id": b"session-1"}
    sent: list[dict[bytes, bytes]] = [{name.encode(): b"secret-1"}, {name.encode(): b"secret-2"}, {}]
    one, other, none = (lane_of(headers | session, HELLO) for headers in sent)
    assert len({one, other, none}) == len({session_of(found) for found in (one, other, none)}) == 3
    assert b"secret" not in one.credential
    assert "secret" not in repr(one)


def by(*headers: tuple[bytes, bytes], further: frozenset[bytes] = frozenset()) -> bytes:
    """The digest of the credential in these headers."""
    return credential_of(dict(headers), further=further)


@pytest.mark.parametrize(
    ("cookies", "count"),
    [
        (b"session=alice", True),
        (b"theme=dark; connect.sid=alice; _ga=1.2", True),
        (b"PHPSESSID=alice", True),
        (b"__Secure-next-auth.session-token=alice", True),
        (b"CF_Authorization=alice", True),
        (b"_ga=alice; __cf_bm=alice; AWSALB=alice; csrftoken=alice; XSRF-TOKEN=alice", False),
        (b"session=", False),
        (b"session", False),
        (b"lang=de;;=;", False),
    ],
)
def test_cookies_of_sessions_are_credentials(cookies: bytes, count: bool) -> None:
    """By their names, whatever stands beside them and in whatever order; other cookies may differ each time."""
    assert (by((b"cookie", cookies)) != NO_CREDENTIAL) is count
    assert (by((b"cookie", cookies)) == by((b"cookie", cookies.replace(b"alice", b"bob")))) is not count
    assert by((b"cookie", cookies)) == by((b"cookie", b"_gid=GA1.2; " + cookies))
    assert by((b"cookie", cookies)) == by((b"cookie", b"; ".join(reversed(cookies.split(b"; ")))))


def test_cookies_count_where_nothing_else_does() -> None:
    """A proxy's or a gateway's may change under one key."""
    key = (b"authorization", b"Bearer key")
    assert by(key, (b"cookie", b"session=1")) == by(key) != by((b"cookie", b"session=1"))


def test_a_setting_names_further_credentials() -> None:
    """They tell apart who has one key in common, and nobody can send another's in another header."""
    further = frozenset({b"x-tenant", b"x-user"})
    key = (b"authorization", b"Bearer key")
    sent = [
        [],
        [key],
        [(b"x-tenant", b"a")],
        [(b"x-tenant", b"b")],
        [(b"x-user", b"a")],
        [key, (b"x-tenant", b"a")],
        [key, (b"x-user", b"a")],
        [(b"x-tenant", b"a"), (b"x-user", b"a")],
        [(b"authorization", b"x-tenant"), (b"x-api-key", b"a")],
        [(b"authorization", b"a")],
        [(b"cookie", b"session=a")],
    ]
    assert len({by(*headers, further=further) for headers in sent}) == len(sent)
    assert by((b"x-tenant", b""), further=further) == NO_CREDENTIAL
    assert by((b"x-tenant", b"a")) == NO_CREDENTIAL
    whole = frozenset({b"cookie"})
    assert by((b"cookie", b"a=1"), further=whole) != by((b"cookie", b"a=2"), further=whole)


def test_who_owns_settings() -> None:
    """A session under a credential; without one a conversation alone, as anybody can name a session."""
    named = {b"x-callfuse-session-id": b"session-1"}
    other = request("user: Something else.")
    assert lane(named).owner == lane(named, of=other).owner == "session-1"
    one, same, another = (lane_of(named, of) for of in (HELLO, HELLO, other))
    assert one.owner == same.owner == f"session-1.{one.fingerprint.hex()}"
    assert one.session == another.session == "session-1"
    assert one.owner != another.owner
    nobody = lane_of({}, HELLO)
    assert nobody.owner == nobody.session


def signed_by(key: str, signature: str) -> dict[bytes, bytes]:
    """A request signed for AWS."""
    text = f"AWS4-HMAC-SHA256 Credential={key}/20261120/us-east-1/bedrock/aws4_request, SignedHeaders=host, "
    return {b"authorization": f"{text}Signature={signature}".encode()}


def test_who_signs_for_aws_is_the_same_with_each_signature() -> None:
    """The access key is the credential; the signature, the day and the region are not."""
    one, again = (lane(signed_by("AKIDEXAMPLE", signature)) for signature in ("5d672d79c15b", "b97d918cfa90"))
    assert one == again
    assert one != lane(signed_by("AKIDANOTHER", "5d672d79c15b"))
    assert lane({b"authorization": b"AWS4-odd one"}) != lane({b"authorization": b"AWS4-odd two"})


# --- what conversations open with


def opened(system: str, dialect: str) -> Lane:
    """The lane of a request with this system prompt."""
    said: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}]}
    if dialect == "anthropic":
        said["system"] = [{"type": "text", "text": text} for text in system.split("\n")]
    else:
        said["messages"].insert(0, {"role": "system", "content": system})
    return lane(of=read(dialect, said))


def read(name: str, body: dict[str, Any]) -> Request:
    """A request as its dialect reads it."""
    (dialect,) = (one for one in DIALECTS if one.name == name)
    found = dialect.read_request(json.dumps(body).encode(), body)
    assert found is not None
    return found


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
def test_claude_codes_billing_line_is_no_part_of_a_conversation(dialect: str) -> None:
    """It is another with each request, as its own text or as the first line of one."""
    line = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={};\nYou are {}."
    one, again, other = (
        opened(line.format(*words), dialect)
        for words in (("36ee5", "an agent"), ("0aaa9", "an agent"), ("36ee5", "new"))
    )
    assert one == again
    assert one != other
    spoken = "You speak of the x-anthropic-billing-header: {}"
    assert opened(spoken.format("36ee5"), dialect) != opened(spoken.format("0aaa9"), dialect)


UNCHAINED = (CHAIN, "conversation")
"""What a request that begins a chain cannot hold."""


@pytest.mark.parametrize(
    "rung", [rung for rung in LADDER if rung.source not in UNCHAINED], ids=lambda rung: rung.source
)
def test_a_chain_goes_on_where_it_was_left(rung: Rung) -> None:
    """The next request's lane is the one under which the answer was kept, however the session is named."""
    body = {"model": "m", "tools": [{"type": "function"}], "input": "Go.", "store": True} | rung.body
    first = read("openai-responses", body)
    follower = first.chain
    assert follower is not None
    kept = chain_lane(lane(rung.headers, body, first), follower.after("resp_1"))
    body[CHAIN] = "resp_1"
    assert lane(rung.headers, body, read("openai-responses", body)) == kept


# --- values of any kind


@pytest.mark.parametrize(
    "odd",
    ["x" * 201, "x" * 1_000_000, "line\nbreak", "a\tb", "\x00\x1b[2J", "\x9b2J", "no\xa0break"],
)
def test_an_odd_id_is_hashed(odd: str) -> None:
    """What is long or not printable neither fills logs nor steers a terminal."""
    headers = {b"x-callfuse-session-id": odd.encode("latin-1")}
    by_header, by_body = lane(headers), lane(body={"session_id": odd})
    assert by_header.named
    assert HASHED.fullmatch(by_header.session)
    assert session_of(by_header) == session_of(by_body)
    assert lane(headers) == by_header


def test_a_long_id_is_hashed_as_far_as_it_is_looked_at() -> None:
    """Work and memory stay bounded, whatever is sent."""
    one, same, other = (
        lane(body={"session_id": f"{pad}{end}"}) for pad, end in (("x" * 4096, 1), ("x" * 4096, 2), ("y", 1))
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("text", ["\ud800 alone", "\u2028\u202e"])
def test_any_character_may_stand_in_a_body(text: str) -> None:
    """Even half of a pair."""
    assert HASHED.fullmatch(lane(body={"session_id": text}).session)


@pytest.mark.parametrize(
    "plain", ["7", "short", "12345678", "a.b:c_d-e", "a/b/c@d.e", "has blanks in it", "sitzung-ä-ä", "x" * 200]
)
def test_a_plain_id_stays(plain: str) -> None:
    """Whatever is printable, up to 200 characters; headers are read as UTF-8 where they are."""
    assert lane({b"x-callfuse-session-id": plain.encode()}).session == plain
    assert lane(body={"session_id": plain}).session == plain


@pytest.mark.parametrize("value", [None, True, 12345678, 1.5, [], ["12345678"], {}, {"id": 12345678}])
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.body], ids=lambda rung: rung.source)
def test_what_is_no_text_is_no_id(rung: Rung, value: Any) -> None:
    """The next way is asked."""
    body = in_body(rung.source, value, "").body
    assert lane(body=body) == lane()
    assert lane({b"x-session-id": b"session-1"}, body).session == "session-1"


@pytest.mark.parametrize("metadata", [None, "session_id", ["session_id"], 5])
def test_metadata_of_another_shape_names_nothing(metadata: Any) -> None:
    """It is an object or it is not read."""
    assert lane(body={"metadata": metadata}) == lane()


ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=300),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "session_id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted({key for rung in LADDER for key in rung.body} | {"user"})
METADATA = st.dictionaries(st.sampled_from(["callfuse_session_id", "session_id", "user_id"]), ODD_JSON)
BODIES = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ODD_JSON) | {"metadata": METADATA | ODD_JSON})
NAMES = sorted({name for rung in LADDER for name in rung.headers} | {name for headers, _ in AGENTS for name in headers})
ORDINARY = [b"user-agent", b"authorization", b"content-type"]
HEADER_NAMES = st.sampled_from(ORDINARY) | st.sampled_from(NAMES) | st.binary(max_size=40)
HEADERS = st.dictionaries(HEADER_NAMES, st.binary(max_size=300))


@more_examples(5)
@given(headers=HEADERS, body=BODIES)
def test_any_values_make_a_lane(headers: dict[bytes, bytes], body: dict[str, Any]) -> None:
    """Whatever stands in headers and body: no error, always the same lane, and only printable characters for logs."""
    found = lane_of(headers, HELLO, body)
    assert found == lane_of(dict(reversed(headers.items())), HELLO, dict(reversed(body.items())))
    for name, shortest, longest in ((found.session, 1, 233), (found.tag, 32, 640)):
        assert name.isprintable()
        assert shortest <= len(name) <= longest
    assert found.source in {rung.source for rung in LADDER}


def test_a_named_session_that_opens_with_a_summary() -> None:
    """Each compaction writes another one, and the conversation is the same. Without a name nothing else tells
    conversations apart, and what a person writes always does."""
    opened = [
        request(f"user: {text} {at}")
        for text in ("Another language model started to solve this problem.", "Another language was used:")
        for at in range(2)
    ]
    named = [lane({b"x-callfuse-session-id": b"one"}, of=one).fingerprint for one in opened]
    assert named[0] == named[1]
    assert len({*named[1:]}) == 3
    assert len({lane(of=one) for one in opened}) == 4


# --- what is remembered of headers

SAID = [
    *SUB_AGENT_HEADERS,
    *NAMES,
    b"authorization",
    b"user-agent",
    b"baggage",
    b"x-other-session-id",
    b"x-my-parent-session-id",
    b"-session-id",
    b"x-callfuse-mode",
    b"x-callfuse-moed",
    b"content-length",
    b"x-request-id",
    b"anything",
]
SPELLED = st.builds(
    lambda name, spell: spell(name), st.sampled_from(SAID), st.sampled_from([bytes.lower, bytes.title, bytes.upper])
)
VALUES = st.sampled_from(
    [b"", b"a", b"b", b" a ", b"a\nb", b"a\0b", b"session.id=a", b"session.id=b", b"codex", b"Codex 2"]
) | st.binary(max_size=20)
SENT = st.lists(st.tuples(SPELLED, VALUES), max_size=5)


@more_examples(5)
@given(requests=st.lists(SENT, min_size=1, max_size=12))
def test_what_is_remembered_is_what_would_be_read(requests: list[list[tuple[bytes, bytes]]]) -> None:
    """Whatever came before, in whatever order, spelling and number: nobody gets another's session or agent."""
    known = KnownHeaders()
    for pairs in [*requests, *requests]:
        for sent in (pairs, pairs[::-1]):
            headers = asgi_headers.read({"headers": sent})
            assert known.read(headers) == read_session_headers(headers)


def test_a_client_is_remembered() -> None:
    """Whatever differs in headers that say nothing of it; and what differs in one that does is another's."""
    known = KnownHeaders()
    sender = {b"x-api-key": b"one", b"x-claude-code-session-id": b"s"}
    first = known.read({**sender, b"content-length": b"1", b"traceparent": b"00-1"})
    assert known.read({**sender, b"content-length": b"2", b"traceparent": b"00-2"}) is first
    assert known.read({**sender, b"x-claude-code-session-id": b"t"}) != first
    assert known.read({**sender, b"x-claude-code-agent-id": b"a"}) != first


@pytest.mark.parametrize("name", [*CREDENTIAL_HEADERS, b"cookie", b"x-tenant"])
def test_no_credential_is_kept(name: bytes) -> None:
    """Neither what headers say of a client nor by what that is found."""
    known = KnownHeaders()
    assert known.read({name: b"sid=secret-of-a-client", OWN_HEADER: b"s"}).own
    kept = repr([getattr(known, slot) for slot in KnownHeaders.__slots__])
    assert "secret" not in kept
    assert OWN_HEADER.decode() in kept


def test_what_is_remembered_is_bounded() -> None:
    """Clients in any number, and names and values of any length."""
    known = KnownHeaders()
    for at in range(MOST_KNOWN + 5):
        known.read({OWN_HEADER: b"%d" % at, b"x-%d" % at: b""})
    assert [len(getattr(known, slot)) for slot in KnownHeaders.__slots__] == [5, 5]
    for long in ({OWN_HEADER: b"s" * LONGEST_KNOWN}, {OWN_HEADER: b"s", b"n" * LONGEST_KNOWN: b""}):
        assert known.read(long) == read_session_headers(long)
    assert [len(getattr(known, slot)) for slot in KnownHeaders.__slots__] == [6, 6]
