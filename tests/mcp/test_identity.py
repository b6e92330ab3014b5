"""Nobody gets the result of somebody else, whatever names two clients share."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from callfuse.mcp import MCPMiddleware
from callfuse.mcp.identity import client_of
from tests.mcp.server import META, NEW, OLD, READ_ONLY, ToolServer, call, guarded, notices, post, responses, text
from tests.mcp.server import with_header as having
from tests.support.asgi import Exchange, Headers, Request, run

KEYED: Headers = (*OLD, (b"authorization", b"Bearer shared"))
SECRETS = {"alice": "violet", "bob": "orange"}


class Users:
    """Two users of one server behind a middleware. The server knows who calls by what nobody else sees."""

    def __init__(self, **settings: Any) -> None:
        self.runs = dict.fromkeys(SECRETS, 0)
        self._user = ""
        self._app: MCPMiddleware = guarded(ToolServer(self._tool), **settings)

    def _tool(self, _: Any) -> dict[str, Any]:
        self.runs[self._user] += 1
        return text(f"the colour is {SECRETS[self._user]}")

    def call(self, user: str, request: Request) -> Exchange:
        """A request of this user, whose answer holds no other's secret."""
        self._user = user
        done = run(self._app, request)
        (other,) = (secret for name, secret in SECRETS.items() if name != user)
        assert other not in done.body.decode(), (user, done.body)
        return done

    def by_turns(self, one: Request, other: Request) -> None:
        """Calls of both, in an order in which each one's results stand behind the other's."""
        for user in ("alice", "alice", "bob", "bob", "alice", "bob"):
            self.call(user, one if user == "alice" else other)


NAMES: dict[str, tuple[Headers, dict[str, Any]]] = {
    "_meta.sessionId": (KEYED, {"sessionId": "default"}),
    "_meta.session_id": (KEYED, {"session_id": "default"}),
    "_meta.threadId": (KEYED, {"threadId": "default"}),
    "x-session-id": ((*KEYED, (b"x-session-id", b"default")), {}),
    "x-callfuse-session-id": ((*KEYED, (b"x-callfuse-session-id", b"default")), {}),
    "Mcp-Session-Id": (KEYED, {}),
}
TELLING: dict[str, tuple[bytes, bytes, bytes]] = {
    "x-user": (b"x-user", b"alice", b"bob"),
    "a session cookie": (b"cookie", b"sessionid=1", b"sessionid=2"),
    "Mcp-Session-Id": (b"mcp-session-id", b"1", b"2"),
    "what no list has": (b"x-anything", b"1", b"2"),
}


@pytest.mark.parametrize("telling", TELLING)
@pytest.mark.parametrize("name", NAMES)
def test_a_shared_name_gives_no_result_to_another(name: str, telling: str) -> None:
    """Behind one key, with one name of a session, two users that anything tells apart get each their own."""
    (headers, meta), (header, one, other) = NAMES[name], TELLING[telling]
    mine, others = (call(headers=having(headers, header, value), meta=meta) for value in (one, other))
    Users().by_turns(mine, others)


@pytest.mark.parametrize("telling", ["x-user", "a session cookie"])
@pytest.mark.parametrize("name", NAMES)
def test_a_user_s_calls_are_no_loop_of_another(name: str, telling: str) -> None:
    """Where a header names the users their calls count apart, too: each one's first two run."""
    (headers, meta), (header, one, other) = NAMES[name], TELLING[telling]
    mine, others = (call(headers=having(headers, header, value), meta=meta) for value in (one, other))
    users = Users()
    users.by_turns(mine, others)
    assert users.runs == {"alice": 2, "bob": 2}


def test_in_doubt_there_is_the_notice_without_a_result() -> None:
    """Two sessions of one conversation count together; who did not get the result reads that it is an error."""
    meta = {"threadId": "t"}
    users = Users()
    one, other = call(headers=KEYED, meta=meta), call(headers=having(KEYED, b"mcp-session-id", b"2"), meta=meta)
    users.call("alice", one)
    users.call("alice", one)
    (given,) = [item["result"] for item in responses(users.call("bob", other))]
    assert given["isError"] is True
    assert [block["text"][:10] for block in given["content"]] == ["[callfuse]"]
    assert "last returned" not in given["content"][0]["text"]
    assert users.runs == {"alice": 2, "bob": 0}


@pytest.mark.parametrize("mode", ["warn", "chance_then_block", "block"])
def test_no_text_quotes_what_another_got(mode: str) -> None:
    """Neither the operator's own texts, whatever the rung."""
    own = dict.fromkeys(("block", "warning", "guidance"), "{tool_name} returned {previous_result}")
    meta = {"threadId": "t"}
    requests = [call(headers=having(KEYED, b"mcp-session-id", name), meta=meta) for name in (b"1", b"2")]
    Users(mode=mode, error_messages=own).by_turns(*requests)


def test_ignored_arguments_may_name_a_user() -> None:
    """They do not tell calls apart, but results."""
    settings = {"per_tool": {"search": {**READ_ONLY["*"], "ignore": ["user"]}}}
    requests = [call({"q": "zebra", "user": name}) for name in ("alice", "bob")]
    Users(**settings).by_turns(*requests)


def test_calls_of_one_batch_may_be_of_several_users() -> None:
    """Each has a `_meta` of its own."""
    first = {"jsonrpc": "2.0", "id": "p", "method": "ping", "params": {"_meta": {"threadId": "t"}}}
    requests = []
    for name in SECRETS:
        params = {"name": "search", "arguments": {}, "_meta": {"threadId": "t", "user": name}}
        requests.append(post([first, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}]))
    Users().by_turns(*requests)


FIELDS = [
    *(("header", name) for name in ("authorization", "x-api-key", "mcp-session-id", "x-session-id", "x-user")),
    *(("header", name) for name in ("x-callfuse-session-id", "cookie", "x-forwarded-for", "baggage", "user-agent")),
    *(("header", name) for name in ("origin", "accept-language", "x-anything", "session_id", "host", "forwarded")),
    *(("meta", name) for name in ("sessionId", "session_id", "threadId", "openai/session", "baggage", "user")),
    *(("nested", name) for name in ("session_id", "user")),
    *(("params", name) for name in ("sessionId", "user")),
    *(("argument", name) for name in ("session", "user")),
    ("query", "user"),
]
CLIENTS = st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(["1", "2"]), max_size=6)


def request_of(fields: dict[tuple[str, str], str], base: Headers) -> Request:
    """A call of a client that sends these fields."""
    parts: dict[str, dict[str, str]] = {}
    for (kind, name), value in fields.items():
        parts.setdefault(kind, {})[name] = value
    headers = base
    for name, value in parts.get("header", {}).items():
        headers = having(headers, name.encode(), f"sid={value}".encode())
    nested = {"about": parts["nested"]} if "nested" in parts else {}
    own = META if base is NEW else {}
    meta = {**own, **parts.get("meta", {}), **nested}
    made = call({"q": "zebra", **parts.get("argument", {})}, headers=headers, meta=meta, **parts.get("params", {}))
    query = "&".join(f"{name}={value}" for name, value in parts.get("query", {}).items())
    return replace(made, query=query.encode())


@pytest.mark.slow
@settings(max_examples=40)
@given(CLIENTS, CLIENTS, st.sampled_from(FIELDS), st.sampled_from([OLD, NEW]))
def test_who_differs_in_anything_gets_nothing_of_another(
    shared: dict[Any, str], own: dict[Any, str], field: Any, base: Headers
) -> None:
    """Two clients that share any names, and differ in at least one field of headers or body."""
    one, other = {**shared, **own, field: "1"}, {**shared, field: "2"}
    assume(request_of(one, base) != request_of(other, base))
    settings = {"per_tool": {"search": {**READ_ONLY["*"], "ignore": ["session", "user"]}}}
    Users(**settings).by_turns(request_of(one, base), request_of(other, base))


@pytest.mark.parametrize(
    "varying",
    [(b"traceparent", b"00-%d"), (b"x-request-id", b"%d"), (b"mcp-param-q", b"%d"), (b"idempotency-key", b"%d")],
)
def test_what_differs_in_each_message_is_no_part_of_it(varying: tuple[bytes, bytes]) -> None:
    """One client gets its own result again, though its traces and ids of requests are new each time."""
    users = Users()
    for at in range(3):
        meta = {"progressToken": at, "claudecode/toolUseId": f"toolu_{at}"}
        headers = having(OLD, varying[0], varying[1] % at)
        done = users.call("alice", call(headers=headers, meta=meta))
    assert SECRETS["alice"] in done.body.decode()
    assert notices(done)


def test_a_repeated_header_counts_each_time() -> None:
    """Where one comes twice, all its values tell clients apart, not the last alone."""
    one, other = (call(headers=(*OLD, (b"x-group", name), (b"x-group", b"all"))).scope() for name in (b"a", b"b"))
    assert client_of(one) != client_of(other)
    swapped = call(headers=(OLD[1], OLD[0], *OLD[2:])).scope()
    assert client_of(swapped) == client_of(call(headers=OLD).scope())


def test_a_certificate_tells_clients_apart() -> None:
    """Where the server gives it to the app."""
    scopes = [{**call().scope(), "extensions": {"tls": {"client_cert_chain": [name]}}} for name in ("a", "b")]
    assert len({client_of(scope) for scope in scopes}) == 2
