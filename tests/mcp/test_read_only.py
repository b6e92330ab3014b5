"""What changes something is not said to have done so again: only tools that are read-only give results again."""

from typing import Any

import pytest

from callfuse.mcp.listings import CLIENTS_KEPT, LONGEST_LIST, TOOLS_KEPT, Listings
from tests.mcp.server import META, NEW, OLD, ToolServer, call, dumps, guarded, notices, post, result, text
from tests.mcp.server import with_header as having
from tests.support.asgi import Exchange, Headers, Request, run_all

READ = {"readOnlyHint": True}


def server_with(annotations: Any, name: str = "search", **more: Any) -> ToolServer:
    """A server that lists one tool, with these annotations."""
    listed = {"tools": [{"name": name, "inputSchema": {}, "annotations": annotations}]}
    return ToolServer(lambda _: text("Email sent."), listed=listed, **more)


def listing(headers: Headers = OLD, id_: Any = "list") -> Request:
    """A request for the list of tools."""
    own = having(headers, b"mcp-method", b"tools/list") if headers is NEW else headers
    params = {"_meta": META} if headers is NEW else {}
    return post({"jsonrpc": "2.0", "id": id_, "method": "tools/list", "params": params}, own)


def third(server: ToolServer, *before: Request, headers: Headers = OLD, per_tool: Any = None) -> Exchange:
    """The answer to the third of three equal calls behind these requests: the tool has run twice."""
    app = guarded(server, per_tool=per_tool or {})
    one = call(headers=headers, meta=META if headers is NEW else None)
    done = run_all(app, [*before, one, one, one])[-1]
    assert len(server.runs) == 2
    assert len(notices(done)) == 1
    assert app.counts.of("fail_open") == 0
    assert app.held_bytes == 0
    return done


def is_given_again(exchange: Exchange) -> bool:
    """Whether the answer begins with the previous result; else it is the notice alone, as an error."""
    given = result(exchange)
    if len(given["content"]) == 2:
        assert given["content"][0]["text"] == "Email sent."
        return True
    assert given["isError"] is True
    return False


@pytest.mark.parametrize(
    ("annotations", "again"),
    [
        (READ, True),
        ({"readOnlyHint": True, "destructiveHint": False}, True),
        (None, False),
        ({}, False),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        ({"readOnlyHint": True, "destructiveHint": True}, False),
        ({"destructiveHint": True}, False),
        ({"idempotentHint": True}, False),
        ([True], False),
    ],
)
def test_only_what_is_said_to_be_read_only_is_given_again(annotations: Any, again: bool) -> None:
    """By `readOnlyHint` in the list of tools that the client has got; all else gets the notice as an error."""
    assert is_given_again(third(server_with(annotations), listing())) is again


@pytest.mark.parametrize(
    ("annotations", "again"), [({"readOnlyHint": False}, False), ({"destructiveHint": True}, False), (READ, True)]
)
def test_six_equal_mails(annotations: Any, again: bool) -> None:
    """Two are sent. None of the four others reads as if it were: each is an error without the earlier result. Only a
    tool that changes nothing gives its own once more."""
    server = server_with(annotations, "send_email")
    app = guarded(server, per_tool={})
    mail = [call({"to": "anna"}, name="send_email", id_=at) for at in range(6)]
    sent, others = (done := run_all(app, [listing(), *mail])[1:])[:2], done[2:]
    assert len(server.runs) == 2
    assert [result(one)["content"] for one in sent] == [text("Email sent.")["content"]] * 2
    assert [is_given_again(one) for one in others] == [again] * 4
    assert all(len(notices(one)) == 1 and "was not run" in notices(others[0])[0] for one in others)


@pytest.mark.parametrize("headers", [OLD, NEW])
@pytest.mark.parametrize(("form", "cut"), [("json", 0), ("json", 3), ("sse", 0), ("sse", 5)])
def test_a_list_is_read_as_it_passes(form: str, cut: int, headers: Headers) -> None:
    """In both revisions and both forms, however it is cut, and no byte of it changes."""
    server = server_with(READ, form=form, cut=cut)
    app = guarded(server, per_tool={})
    assert run_all(app, [listing(headers)])[0].sent == run_all(server, [listing(headers)])[0].sent
    server.runs.clear()
    assert is_given_again(third(server, listing(headers), headers=headers))


def test_without_a_list_nothing_is_given_again() -> None:
    """Nobody has said what the tool does."""
    assert not is_given_again(third(server_with(READ)))


def test_a_list_of_another_client_says_nothing() -> None:
    """Servers may show each session other tools of one name."""
    assert not is_given_again(third(server_with(READ), listing(having(OLD, b"mcp-session-id", b"other"))))


def test_a_list_that_was_not_asked_for_says_nothing() -> None:
    """Its id must be that of the request."""

    class Confused(ToolServer):
        def response(self, message: dict[str, Any]) -> bytes:
            """The response to one request, with a wrong id if it is for the list."""
            own = {**message, "id": "other"} if message["method"] == "tools/list" else message
            return super().response(own)

    server = server_with(READ)
    confused = Confused(server.tool, listed=server.listed)
    assert not is_given_again(third(confused, listing()))


@pytest.mark.parametrize(
    ("own", "annotations", "again"),
    [
        ({"changes_state": False}, None, True),
        ({"changes_state": False}, {"readOnlyHint": False}, True),
        ({"poller": False}, READ, True),
        ({"poller": False}, None, False),
    ],
)
def test_the_settings_say_it_before_the_server(own: Any, annotations: Any, again: bool) -> None:
    """`changes_state: false` makes a tool read-only; without it the server's word holds."""
    assert is_given_again(third(server_with(annotations), listing(), per_tool={"search": own})) is again


def test_what_changes_state_by_the_settings_is_not_read_only() -> None:
    """Whatever the server says: its calls are progress, and the equal ones of a batch a loop all the same."""
    server = server_with(READ)
    app = guarded(server, state_changing=["search"], per_tool={})
    done = run_all(app, [listing(), *[call()] * 3])[-1]
    assert not is_given_again(done)


def test_a_newer_list_wins() -> None:
    """A tool that is not read-only any more."""
    server = server_with(READ)
    app = guarded(server, per_tool={})
    run_all(app, [listing(), call(), call()])
    server.listed = server_with({"readOnlyHint": False}).listed
    assert not is_given_again(run_all(app, [listing(), call()])[-1])


@pytest.mark.parametrize("size", [10, LONGEST_LIST])
def test_a_list_that_is_too_long_is_not_read(size: int) -> None:
    """It passes, and nothing of it stays."""
    server = server_with(READ)
    server.listed = {**server.listed, "pad": "x" * size}
    assert is_given_again(third(server, listing())) is (size < LONGEST_LIST)


@pytest.mark.parametrize("listed", [{"tools": 1}, {"tools": [1, {"name": 2}, {}]}, {}, {"tools": []}])
def test_odd_lists_say_nothing(listed: Any) -> None:
    """And nothing fails."""
    assert not is_given_again(third(ToolServer(lambda _: text("Email sent."), listed=listed), listing()))


def test_what_is_known_of_lists_is_bounded() -> None:
    """In clients and in tools, the newest of each client's pages counting together."""
    listings = Listings()

    def page(start: int, size: int) -> bytes:
        tools = [{"name": f"t{at}", "annotations": READ} for at in range(start, start + size)]
        return dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}})

    listings.take(b"", [b"1"], page(0, 2))
    listings.take(b"", [b"1"], page(2, TOOLS_KEPT))
    known = [at for at in range(TOOLS_KEPT + 2) if listings.says_read_only(b"", f"t{at}")]
    assert known == list(range(TOOLS_KEPT))
    for at in range(CLIENTS_KEPT):
        listings.take(b"%d" % at, [b"1"], page(0, 1))
    assert len(listings) == CLIENTS_KEPT
    assert not listings.says_read_only(b"", "t0")
