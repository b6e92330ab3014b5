"""`MCPMiddleware`: a tool that is called in a loop does not run again, and nothing else changes."""

import json
from typing import Any

import pytest

from callfuse import ConfigError
from callfuse.mcp import MCPMiddleware
from callfuse.observe.events import CallSeen, ExchangeEnded, FindingSeen, NotGuarded
from tests.mcp.server import (
    META,
    NEW,
    OLD,
    ToolServer,
    call,
    call_message,
    dumps,
    guarded,
    notices,
    observed,
    post,
    responses,
    result,
    text,
    with_header,
)
from tests.support.asgi import Exchange, Headers, Request, run, run_all
from tests.support.wire import events

REVISIONS: list[tuple[Headers, dict[str, Any] | None]] = [(OLD, None), (NEW, META)]


def spin(app: MCPMiddleware, times: int, **more: Any) -> list[Exchange]:
    """The same call so many times, each with an id of its own."""
    return run_all(app, [call(id_=at, **more) for at in range(1, times + 1)])


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize(("headers", "meta"), REVISIONS)
def test_a_tool_does_not_run_in_a_loop(form: str, headers: Headers, meta: Any) -> None:
    """Of eight equal calls with equal results two run; the others get the result of these, and a notice."""
    server = ToolServer(form=form)
    done = spin(guarded(server), 8, headers=headers, meta=meta)
    assert len(server.runs) == 2
    assert [len(notices(one)) for one in done] == [0, 0, 1, 1, 1, 1, 1, 1]
    assert [responses(one)[0]["id"] for one in done] == list(range(1, 9))
    for one in done:
        assert one.complete
        assert one.status == 200
        assert result(one)["content"][0] == {"type": "text", "text": "nothing was found"}
        assert result(one)["isError"] is False
    assert "was not run" in notices(done[2])[0]
    assert "Stopped a tool call loop" in notices(done[3])[0]
    assert done[2].header(b"x-callfuse-action") == b"steer; kind=repeat; count=3"
    assert done[3].header(b"x-callfuse-action") == b"block; kind=repeat; count=4"


@pytest.mark.parametrize("form", ["json", "sse"])
def test_observe_changes_nothing(form: str) -> None:
    """Findings are told, and that is all."""
    server, bare = ToolServer(form=form), ToolServer(form=form)
    app, seen = observed(server, "observe")
    done = spin(app, 5)
    assert len(server.runs) == 5
    assert [one.body for one in done] == [one.body for one in spin_bare(bare, 5)]
    assert [event.action for event in seen.of(FindingSeen)] == ["observe"] * 3


def spin_bare(server: ToolServer, times: int) -> list[Exchange]:
    """The same without a guard."""
    return run_all(server, [call(id_=at) for at in range(1, times + 1)])


@pytest.mark.parametrize("form", ["json", "sse"])
def test_a_warning_goes_with_the_tools_own_result(form: str) -> None:
    """The tool runs each time; from the third time on the notice is one more block of its result."""
    server = ToolServer(form=form)
    done = spin(guarded(server, "warn"), 4)
    assert len(server.runs) == 4
    assert [len(notices(one)) for one in done] == [0, 0, 1, 1]
    assert result(done[3])["content"][0]["text"] == "nothing was found"
    assert all(one.complete for one in done)
    if form == "json":
        assert done[3].header(b"content-length") == str(len(done[3].body)).encode()


@pytest.mark.parametrize("rung", ["steer", "force_text", "block"])
def test_all_other_rungs_keep_the_tool_from_running(rung: str) -> None:
    """There is no model to be asked: each gives the previous result and its text."""
    server = ToolServer()
    done = spin(guarded(server, [rung]), 4)
    assert len(server.runs) == 2
    assert [len(notices(one)) for one in done] == [0, 0, 1, 1]
    assert result(done[3])["content"][0]["text"] == "nothing was found"


def test_escalate_is_a_rung_too() -> None:
    """It does not run either."""
    server = ToolServer()
    spin(guarded(server, ["escalate"], escalate_model="other"), 4)
    assert len(server.runs) == 2


def test_a_graduated_ladder_is_climbed() -> None:
    """Warned twice, then blocked."""
    server = ToolServer()
    done = spin(guarded(server, "graduated"), 6)
    assert len(server.runs) == 4
    assert ["Stopped" in "".join(notices(one)) for one in done] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("cut", [0, 1, 7])
def test_healthy_calls_pass_byte_for_byte(form: str, cut: int) -> None:
    """Status, headers and bytes, however they come; the app gets the request's own bytes."""
    tool = lambda params: text(f"found {params['arguments']['q']}", _meta={"n": 12345678901234567890})  # noqa: E731
    server, bare = (ToolServer(tool, form=form, cut=cut, headers=((b"x-own", b"1"),)) for _ in range(2))
    requests = [call({"q": word}, id_=f"id-{word}") for word in ("ä", "b", "c", "d", "e")]
    app = guarded(server)
    for mine, own in zip(run_all(app, requests), run_all(bare, requests), strict=True):
        assert (mine.status, mine.headers, mine.body) == (own.status, own.headers, own.body)
        assert mine.complete
    assert server.bodies == bare.bodies
    assert app.held_bytes == 0


OTHERS = [
    post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}),
    post({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    post({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}),
    post({"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}}),
    post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {}}}),
    post({"jsonrpc": "2.0", "id": None, "method": "tools/call", "params": {"name": "search"}}),
    post({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search"}}),
    post([]),
    post(1),
    Request("/mcp", b"", OLD, method="GET"),
    Request("/mcp", b"", OLD, method="DELETE"),
    Request("/api/things", b'{"method": "tools/call", "id": 1, "params": {"name": "x"}}'),
]


class Echo:
    """Answers with what has come, and its kind."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        body = (await receive()).get("body", b"")
        self.bodies.append(body)
        headers = [(b"content-type", b"text/event-stream"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 418, "headers": headers})
        await send({"type": "http.response.body", "body": body[:5], "more_body": True})
        await send({"type": "http.response.body", "body": body[5:]})


@pytest.mark.parametrize("request_", OTHERS)
def test_everything_else_passes(request_: Request) -> None:
    """What is no call of a tool goes straight through, however often it comes."""
    app, echo = guarded(Echo()), Echo()
    for _ in range(4):
        mine, own = run(app, request_), run(echo, request_)
        assert mine.sent == own.sent
    assert app.callers == 0


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"", b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"])
def test_what_cannot_be_read_passes(body: bytes) -> None:
    """And is counted."""
    app = guarded(Echo())
    assert run(app, Request("/mcp", body, OLD)).body == body
    assert app.counts.of("not_guarded", "request not JSON") == 1


def test_other_arguments_and_other_results_are_no_loop() -> None:
    """The tool runs whenever something is new."""
    server = ToolServer(lambda params: text(f"page {params['arguments']['page']}"))
    done = run_all(guarded(server), [call({"page": at}) for at in range(8)])
    assert len(server.runs) == 8
    assert not any(map(notices, done))
    counter = iter(range(100))
    server = ToolServer(lambda _: text(f"{next(counter)} items"))
    assert not any(map(notices, spin(guarded(server), 5)))
    assert len(server.runs) == 5


def test_the_order_of_keys_and_the_way_of_writing_do_not_matter() -> None:
    """Calls are equal by what they say."""
    server = ToolServer()
    bodies = [b'{"a": 1, "b": 2.0}', b'{"b":2,"a":1}', b'{ "b" : 2e0, "a" : 1 }']
    requests = [
        Request("/mcp", b'{"id":1,"method":"tools/call","params":{"name":"t","arguments":%b}}' % one, OLD)
        for one in bodies
    ]
    assert len(notices(run_all(guarded(server), requests)[2])) == 1


def test_big_integers_tell_calls_apart() -> None:
    """Every digit counts."""
    server = ToolServer()
    run_all(guarded(server), [call({"id": 10**30 + at}) for at in range(6)])
    assert len(server.runs) == 6


def test_a_blocked_call_may_run_again_once_something_new_has_run() -> None:
    """As on the wire: a new call frees it, once."""
    server = ToolServer()
    app = guarded(server)
    spin(app, 5)
    done = run_all(app, [call({"q": "yak"}), call(), call()])
    assert [len(notices(one)) for one in done] == [0, 0, 1]
    assert len(server.runs) == 4


RESULTS = [
    {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]},
    {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
    {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}]},
    {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}},
    {"content": [], "structuredContent": {"rows": []}, "_meta": {"a": 1}},
    {"content": [{"type": "text", "text": "no such file"}], "isError": True},
    {"content": [{"type": "text", "text": "3"}], "resultType": "complete"},
]


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("made", RESULTS)
def test_the_previous_result_is_given_whole(made: dict[str, Any], form: str) -> None:
    """Whatever its blocks are; structured content and all else stay, but that it is an error where it has structured
    content: of a success some clients show the model nothing else."""
    server = ToolServer(lambda _: made, form=form)
    done = spin(guarded(server), 3)
    given = result(done[2])
    assert len(server.runs) == 2
    assert given["content"][:-1] == made["content"]
    assert given["content"][-1]["text"].startswith("[callfuse]")
    flag = {"isError": True} if "structuredContent" in made else {}
    assert given == {**made, "content": given["content"], **flag}


def test_numbers_of_a_result_keep_their_digits() -> None:
    """The bytes of the result are those that came."""
    raw = b'{"content":[{"type":"text","text":"\\u00e4"}],"structuredContent":{"n":1.50,"id":123456789012345678901234}}'
    done = spin(guarded(ToolServer(lambda _: raw)), 3)
    assert b'"structuredContent":{"n":1.50,"id":123456789012345678901234}' in done[2].body
    assert rb'{"type":"text","text":"\u00e4"}' in done[2].body


def test_what_changes_with_each_response_does_not_count() -> None:
    """`_meta` and annotations of blocks are not the result."""
    counter = iter(range(100))

    def tool(_: Any) -> Any:
        at = next(counter)
        block = {"type": "text", "text": "same", "annotations": {"priority": at}, "_meta": {"at": at}}
        return {"content": [block], "_meta": {"trace": at}}

    server = ToolServer(tool)
    spin(guarded(server), 4)
    assert len(server.runs) == 2


def test_structured_content_counts() -> None:
    """A result whose text says less than its structure."""
    counter = iter(range(100))
    server = ToolServer(lambda _: text("done", structuredContent={"left": next(counter)}))
    spin(guarded(server), 5)
    assert len(server.runs) == 5


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("form", ["json", "sse"])
def test_errors_of_the_protocol_are_outcomes(form: str, status: int) -> None:
    """The same error again and again is a loop; it is given as a result that a model gets to read."""
    error = {"error": {"code": -32602, "message": "Invalid params: q is required"}}
    server = ToolServer(lambda _: error, form=form, status=status)
    done = spin(guarded(server), 3)
    assert len(server.runs) == 2
    assert [responses(one)[0].get("error") for one in done] == [error["error"], error["error"], None]
    assert result(done[2])["isError"] is True
    assert result(done[2])["content"][0]["text"] == "Invalid params: q is required"
    assert len(notices(done[2])) == 1


def test_a_notice_goes_with_an_error_of_the_protocol() -> None:
    """At `warn` it stands at the end of the message."""
    server = ToolServer(lambda _: {"error": {"code": -32000, "message": "no", "data": {"why": "not"}}})
    error = responses(spin(guarded(server, "warn"), 3)[2])[0]["error"]
    assert error["message"].startswith("no\n\n[callfuse]")
    assert (error["code"], error["data"]) == (-32000, {"why": "not"})


def test_the_same_error_for_other_arguments_is_told_with_the_result() -> None:
    """`same_error` judges results, so its warning goes with the one that shows it."""
    server = ToolServer(lambda _: text("permission denied", isError=True))
    done = run_all(guarded(server), [call({"q": word}) for word in "abcd"])
    assert [len(notices(one)) for one in done] == [0, 0, 0, 1]
    assert len(server.runs) == 4


def test_a_block_is_an_error_where_the_settings_want_it() -> None:
    """`finish_reason: error` flags what is blocked, not what is steered."""
    done = spin(guarded(ToolServer(), finish_reason="error"), 4)
    assert [result(one)["isError"] for one in done] == [False, False, False, True]


def test_custom_texts() -> None:
    """The settings' texts are used, with their placeholders."""
    messages = {"block": "Enough of {tool_name} ({count}): {previous_result}"}
    done = spin(guarded(ToolServer(), "block", error_messages=messages), 3)
    assert notices(done[2]) == ["[callfuse] Enough of search (3): nothing was found"]


def test_a_result_that_is_too_long_to_be_kept() -> None:
    """Then there is the notice alone, flagged as an error, because clients would miss the structured content."""
    long = text("x" * 1_100_000, structuredContent={"a": 1})
    server = ToolServer(lambda _: long)
    done = spin(guarded(server), 3)
    assert len(server.runs) == 2
    assert len(result(done[2])["content"]) == 1
    assert result(done[2])["isError"] is True
    assert "structuredContent" not in result(done[2])


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({"pollers": ["search"]}, 8),
        ({"per_tool": {"search": {"poller": True}}}, 8),
        ({"per_tool": {"search": {"enabled": False}}}, 8),
        ({"per_tool": {"sea*": {"max_repeats": 5, "max_repeats_changing": 10}}}, 4),
        ({"per_tool": {"search": {"mode": "observe"}}}, 8),
        ({"max_repeats": 2}, 1),
        ({"enabled": False}, 8),
        ({"detectors": {"no_news": False}, "max_repeats": 0}, 8),
    ],
)
def test_settings_hold(settings: dict[str, Any], runs: int) -> None:
    """Of the server, and of single tools."""
    server = ToolServer()
    spin(guarded(server, **settings), 8)
    assert len(server.runs) == runs


def test_ignored_arguments_do_not_tell_calls_apart() -> None:
    """`ignore` of a tool."""
    server = ToolServer()
    app = guarded(server, per_tool={"search": {"ignore": ["nonce"]}})
    done = run_all(app, [call({"q": "zebra", "nonce": at}) for at in range(5)])
    assert len(server.runs) == 2
    assert notices(done[4])


def test_what_changes_state_ends_a_streak() -> None:
    """`changes_state`: its success is progress for all other calls. What a server says of its tools does not count."""
    server = ToolServer()
    app = guarded(server, per_tool={"write": {"changes_state": True}})
    run_all(app, [call(name=name) for name in ("search", "search", "write", "search", "write", "search")])
    assert len(server.runs) == 6


def test_waiting_for_something_is_no_loop() -> None:
    """Results that say that work goes on."""
    server = ToolServer(lambda _: text('{"status": "running"}'))
    spin(guarded(server), 8, name="build")
    assert len(server.runs) == 8


def test_what_happens_is_told() -> None:
    """Calls, findings and exchanges, under the name `mcp`."""
    app, seen = observed(ToolServer())
    spin(app, 3)
    assert [event.action for event in seen.of(CallSeen)] == ["none", "none", "steer"]
    where = seen.one(FindingSeen).where
    assert (where.session, where.source, where.dialect, where.backend) == ("a1b2c3", "mcp-session-id", "mcp", "mcp")
    told = [(one.mode, one.ending, one.cause, one.status, one.calls, one.action) for one in seen.of(ExchangeEnded)]
    assert told == [
        ("guarded", "complete", "", 200, 1, ""),
        ("guarded", "complete", "", 200, 1, ""),
        ("answered", "complete", "", 200, 1, "steer"),
    ]
    assert app.counts.of("findings", "steer") == 1


def test_a_client_that_takes_events_only_gets_events() -> None:
    """Our own answer is of a form that was asked for."""
    headers = with_header(OLD, b"accept", b"text/event-stream")
    done = spin(guarded(ToolServer()), 3, headers=headers)[2]
    assert done.header(b"content-type") == b"text/event-stream"
    assert len(notices(done)) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_result_on_several_lines_is_one_event(end: bytes) -> None:
    """As servers write it that indent their JSON."""
    made = end.join([b"{", b'"content": [', b'{"type": "text", "text": "x"}', b"]", b"}"])
    app = guarded(ToolServer(lambda _: made))
    done = spin(app, 3, headers=with_header(OLD, b"accept", b"text/event-stream"))[2]
    (event,) = events(done.body)
    assert json.loads(event.data)["result"]["content"][0] == {"type": "text", "text": "x"}
    server = ToolServer(lambda _: made)
    app = guarded(server)
    spin(app, 2)
    server.form = "sse"
    batch = run(app, post([call_message(id_=8), {"jsonrpc": "2.0", "id": "p", "method": "ping"}]))
    found = [json.loads(one.data) for one in events(batch.body)]
    assert [one["id"] for one in found if "id" in one] == [8, "p"]


def test_new_results_have_a_type() -> None:
    """Where no result is kept, the notice is a result of the revision."""
    long = text("x" * 1_100_000, resultType="complete")
    done = spin(guarded(ToolServer(lambda _: long)), 3, headers=NEW, meta=META)
    assert result(done[2])["resultType"] == "complete"
    assert "resultType" not in result(spin(guarded(ToolServer(lambda _: long)), 3)[2])


def test_a_wrong_setting_is_told_at_once() -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=r"tool_call_loop\.max_repeats = 1"):
        MCPMiddleware(ToolServer(), {"tool_call_loop": {"max_repeats": 1}})


def test_a_call_without_arguments() -> None:
    """Missing, null and empty arguments are the same."""
    server = ToolServer()
    bodies = [{"name": "t"}, {"name": "t", "arguments": None}, {"name": "t", "arguments": {}}]
    requests = [post({"id": at, "method": "tools/call", "params": one}) for at, one in enumerate(bodies)]
    assert len(notices(run_all(guarded(server), requests)[2])) == 1


def test_equal_results_that_differ_in_form_are_equal() -> None:
    """A server may answer now as JSON and now as events."""
    server = ToolServer()
    app = guarded(server)
    spin(app, 1)
    server.form = "sse"
    spin(app, 1)
    assert len(notices(spin(app, 1)[0])) == 1


BATCH = [call_message({"q": "a"}, id_=1), call_message({"q": "b"}, id_=2)]


@pytest.mark.parametrize("form", ["json", "sse"])
def test_a_batch_is_a_round(form: str) -> None:
    """Of older revisions: where all of its calls loop, none runs, and each gets its own result."""
    server = ToolServer(lambda params: text(f"result {params['arguments']['q']}"), form=form)
    done = run_all(guarded(server), [post(BATCH)] * 4)
    assert len(server.runs) == 4
    for one in done[2:]:
        found = {response["id"]: response["result"]["content"] for response in responses(one)}
        assert [found[1][0]["text"], found[2][0]["text"]] == ["result a", "result b"]
        assert len(notices(one)) == 2
    assert isinstance(json.loads(done[3].body), list)


@pytest.mark.parametrize("form", ["json", "sse"])
def test_what_is_withheld_of_a_batch_is_taken_out(form: str) -> None:
    """The app gets the rest, byte for byte, and its responses go with ours."""
    server = ToolServer(form=form)
    app = guarded(server)
    spin(app, 2)
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    done = run(app, post([call_message(id_=8), ping]))
    assert server.bodies[-1] == b"[" + dumps(ping) + b"]"
    assert {one["id"] for one in responses(done)} == {8, "p"}
    assert len(notices(done)) == 1
    assert done.complete


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (401, b"application/json", b'{"error":"invalid_token"}'),
        (403, b"text/plain", b"no"),
        (
            404,
            b"application/json",
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
        ),
        (500, b"text/html", b"<html>"),
        (200, b"text/html", b"<html>"),
    ],
)
def test_a_server_that_refuses_the_rest_of_a_batch(status: int, kind: bytes, body: bytes) -> None:
    """Its answer arrives as it is: who is refused gets no result that was kept, and knows why."""
    app = guarded(ToolServer())
    spin(app, 2)

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})

    app.app = refusing
    done = run(app, post([call_message(id_=8), {"jsonrpc": "2.0", "id": "p", "method": "ping"}]))
    assert (done.status, done.body) == (status, body)
    assert done.header(b"content-type") == kind


def test_results_of_equal_ids_are_nobody_s() -> None:
    """Such a batch is against the protocol: a result is never given again for another call."""
    app = guarded(ToolServer(lambda params: text(f"result {params['arguments']['q']}")))
    run_all(app, [post([call_message({"q": word}, id_=1) for word in ("a", "b")])] * 3)
    for word in ("a", "b"):
        for done in run_all(app, [call({"q": word})] * 4):
            assert result(done)["content"][0]["text"] in (f"result {word}", *notices(done))


def test_a_batch_whose_rest_gets_no_response() -> None:
    """The server accepts it with 202 and no body; the client gets our responses."""
    server = ToolServer()
    app = guarded(server)
    spin(app, 2)
    done = run(app, post([{"jsonrpc": "2.0", "method": "notifications/x"}, call_message(id_=8)]))
    assert done.status == 200
    assert done.header(b"content-type") == b"application/json"
    assert [one["id"] for one in responses(done)] == [8]


def test_the_transport_before_is_left_alone() -> None:
    """Its POSTs are accepted, and the responses come with a GET: nobody would get ours."""
    server = ToolServer()
    headers = ((b"content-type", b"application/json"), (b"accept", b"*/*"), (b"mcp-protocol-version", b"2024-11-05"))
    app = guarded(server)
    run_all(app, [call(headers=headers)] * 20)
    assert (len(server.runs), app.callers) == (20, 0)


def test_a_batch_of_too_many_calls_passes() -> None:
    """And is counted."""
    app = guarded(Echo())
    body = post([call_message({"at": at}, id_=at) for at in range(129)])
    assert run(app, body).body == body.body
    assert app.callers == 0


@pytest.mark.parametrize("odd", [call(name="x" * 2000), call(id_="x" * 2000)])
def test_names_and_ids_are_bounded(odd: Request) -> None:
    """A call with a longer one is left alone: nothing of it is kept."""
    app = guarded(ToolServer())
    run_all(app, [odd] * 4)
    assert app.callers == 0


def test_a_packed_request_is_left_alone() -> None:
    """No server of MCP unpacks one."""
    app = guarded(Echo())
    request = Request("/mcp", b"\x1f\x8b", with_header(OLD, b"content-encoding", b"gzip"))
    assert run(app, request).body == b"\x1f\x8b"
    assert app.counts.of("not_guarded", "request encoding") == 1


@pytest.mark.parametrize(
    ("more", "cause"),
    [({"max_request_bytes": 10}, "max_request_bytes"), ({"max_total_bytes": 10}, "max_total_bytes")],
)
def test_requests_beyond_a_limit_pass(more: dict[str, int], cause: str) -> None:
    """Unread, unguarded and counted."""
    server = ToolServer()
    app, seen = observed(server, **more)
    spin(app, 4)
    assert len(server.runs) == 4
    assert {event.cause for event in seen.of(NotGuarded)} == {cause}
    assert app.held_bytes == 0


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("cut", [0, 100])
def test_an_answer_beyond_the_limit_passes(form: str, cut: int) -> None:
    """Byte for byte, as if there were no guard, and counted; what is not read is hardly a sign of a loop."""
    server, bare = (ToolServer(lambda _: text("x" * 3000), form=form, cut=cut) for _ in range(2))
    app, seen = observed(server, max_response_bytes=1000)
    done = spin(app, 4)
    if form == "sse" and not cut:
        assert not seen.of(NotGuarded)  # an event that comes at once is never kept
        return
    assert [one.body for one in done] == [one.body for one in spin_bare(bare, 4)]
    assert len(server.runs) == 4
    assert {event.cause for event in seen.of(NotGuarded)} == {"max_response_bytes"}
    assert app.held_bytes == 0


def test_a_packed_answer_passes() -> None:
    """The app is asked for a plain one; one that packs all the same is not read."""
    server = ToolServer(headers=((b"content-encoding", b"gzip"),))
    app = guarded(server)
    spin(app, 4, headers=(*OLD, (b"accept-encoding", b"gzip")))
    assert len(server.runs) == 4
    assert app.counts.of("not_guarded", "content-encoding") == 4
    assert dict(server.scopes[0]["headers"])[b"accept-encoding"] == b"identity"


def test_an_answer_of_another_kind_passes() -> None:
    """An HTML page, say."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<html>"})

    done = spin(guarded(page), 4)
    assert {one.body for one in done} == {b"<html>"}
