"""What `tool_hint` and `tool_names` add to requests: nothing else changes, and a prefix always reads the same."""

import json
import logging
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callfuse.policy.texts import LOOP_HINT
from tests.dialects.reading import read
from tests.laws.test_surgical import SIGNED
from tests.support.asgi import JSON_REQUEST, Headers, Request
from tests.support.kits import DialectKit
from tests.support.meeting import Session, ask, bare, every_dialect, in_session, meet, reply, streamed_and_whole
from tests.support.model import History, Round, User
from tests.support.plain import again, elsewhere, known_call, same_call, saying, spin
from tests.support.rules import violations
from tests.support.streams import styles, tangled

HINTED: dict[str, Any] = {"tool_hint": True, "tool_names": True}
HINT = LOOP_HINT.encode()
NAME_KEYS = {"openai-chat": "name", "ollama": "tool_name"}
"""Where a message with a result has a key for the name of its tool."""


def sent(kit: DialectKit, request: Request, ladder: str = "block", **settings: Any) -> bytes:
    """What the app hears of a request."""
    met = meet(request, [reply(kit, saying("Ok."), stream=True)], ladder, **settings)
    return met.app.heard[0].body


def without_names(kit: DialectKit, history: History, **more: Any) -> Request:
    """A request whose results do not say which tool they are of."""
    request = ask(kit, history, stream=True, **more)
    body = json.loads(request.body)
    for message in body.get("messages", ()):
        if message["role"] == "tool":
            message.pop(NAME_KEYS.get(kit.name), None)
    return Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)


def named(body: bytes) -> list[str | None]:
    """The names at the results of a request that has messages."""
    messages = json.loads(body)["messages"]
    return [one.get("tool_name", one.get("name")) for one in messages if one["role"] == "tool"]


@every_dialect
@given(data=st.data())
def test_the_hint_is_put_in_and_nothing_else_is_touched(kit: DialectKit, data: st.DataObject) -> None:
    """Take it out of the descriptions again, and the client's bytes are left."""
    request = ask(kit, data.draw(tangled()), stream=True, style=data.draw(styles()))
    heard = sent(kit, request, tool_hint=True)
    assert heard.count(HINT) == len(ask_tools(kit))
    assert heard.replace(b"\\n\\n" + HINT, b"") == sent(kit, request)
    assert violations(kit.name, json.loads(heard)) == violations(kit.name, json.loads(request.body))


def ask_tools(kit: DialectKit) -> tuple[str, ...]:
    """The tools that every request of the kits declares."""
    return History((User("Hello."),)).tools


@every_dialect
@given(data=st.data())
def test_names_are_put_in_and_nothing_else_is_touched(kit: DialectKit, data: st.DataObject) -> None:
    """Where a format has a key for them; elsewhere the request stays as it came."""
    request = without_names(kit, data.draw(tangled()))
    heard = sent(kit, request, "block", tool_names=True)
    if kit.name not in NAME_KEYS:
        assert heard == sent(kit, request)
        return
    key = NAME_KEYS[kit.name]
    body = json.loads(heard)
    for message in body["messages"]:
        assert message["role"] != "tool" or message.pop(key)
    assert body == json.loads(sent(kit, request))
    assert violations(kit.name, json.loads(heard)) == violations(kit.name, json.loads(request.body))


@pytest.mark.parametrize("name", NAME_KEYS)
def test_each_result_gets_the_name_of_its_own_tool(name: str) -> None:
    """Results of one answer in any order; a name that is there stays."""
    kit = next(kit for kit in every_kit() if kit.name == name)
    both = Round((known_call("call_a"), same_call("call_b")), ("one", "two"))
    request = without_names(kit, History((User("Find it."), both, *spin(1).turns[1:])))
    assert named(sent(kit, request, tool_names=True)) == ["lookup", "search", "search"]
    body = json.loads(request.body)
    results = [at for at, one in enumerate(body["messages"]) if one["role"] == "tool"]
    first, second = results[:2]
    body["messages"][first], body["messages"][second] = body["messages"][second], body["messages"][first]
    body["messages"][results[2]][NAME_KEYS[name]] = "mine"
    turned = Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)
    assert named(sent(kit, turned, tool_names=True)) == ["search", "lookup", "mine"]


def every_kit() -> list[DialectKit]:
    """All kits."""
    return list(every_dialect.args[1])


@every_dialect
@given(data=st.data())
def test_what_has_them_stays_as_it_is(kit: DialectKit, data: st.DataObject) -> None:
    """A second guard that is not told of the first adds nothing."""
    request = without_names(kit, data.draw(tangled()))
    once = sent(kit, request, **HINTED)
    assert sent(kit, Request(request.path, once, request.headers, query=request.query), **HINTED) == once


@every_dialect
@given(data=st.data())
def test_the_same_prefix_reads_the_same(kit: DialectKit, data: st.DataObject) -> None:
    """Of a conversation that goes on, so that prompt caches keep hitting."""
    history = data.draw(tangled())
    more = without_names(kit, history)
    less = without_names(kit, History(history.turns[: data.draw(st.integers(1, len(history.turns)))]))
    begun = json.loads(less.body)[kit.history_key]
    assume(json.loads(more.body)[kit.history_key][: len(begun)] == begun)  # where roles alternate, a message may grow
    long, short = (json.loads(sent(kit, one, **HINTED)) for one in (more, less))
    earlier, later = short.pop(kit.history_key), long.pop(kit.history_key)
    assert short == long
    assert later[: len(earlier)] == earlier


@every_dialect
def test_what_a_session_sets_does_not_change_them(kit: DialectKit) -> None:
    """Its next request has the same tools, whatever was found and set in between."""

    async def talk(session: Session) -> None:
        plain, command = (User(text) for text in ("Find it.", "!/set(tool-loop-mode=observe)\nGo on."))
        headers: Headers = (*JSON_REQUEST, (b"x-callfuse-session-id", b"of-these-hints"))
        for history in (History((plain,)), History((plain, *spin(3).turns[1:], command))):
            request = ask(kit, history, stream=True, headers=headers)
            await session.exchange(request, reply(kit, saying("Ok."), stream=True))

    meetings = in_session(talk, "block", **HINTED).meetings
    counts = [met.app.heard[0].body.count(HINT) for met in meetings]
    assert counts == [len(ask_tools(kit))] * 2


@every_dialect
def test_another_guard_s_request_gets_none(kit: DialectKit) -> None:
    """What another callfuse guards is only observed."""
    request = without_names(kit, spin(2), headers=(*JSON_REQUEST, (b"x-callfuse-via", b"1")))
    assert sent(kit, request, **HINTED) == request.body


@every_dialect
@streamed_and_whole
def test_an_error_of_our_own_adds_none(kit: DialectKit, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request goes on as it came, guarded as ever."""
    monkeypatch.setattr("callfuse.asgi.exchange.with_hints", lambda *_: 1 / 0)
    request = ask(kit, spin(2), stream=stream)
    met = meet(request, [reply(kit, again(), stream=stream)], "block", **HINTED)
    assert met.app.heard[0].body == request.body
    assert b"call_first" not in met.body
    assert met.log_at(logging.ERROR)


@every_dialect
@pytest.mark.parametrize("signature", SIGNED, ids=lambda header: header[0].decode())
def test_a_signed_request_gets_none(kit: DialectKit, signature: tuple[bytes, bytes]) -> None:
    """No byte of it may change."""
    headers = (*(header for header in JSON_REQUEST if header[0] != signature[0]), signature)
    request = without_names(kit, spin(2), headers=headers)
    assert sent(kit, request, **HINTED) == request.body


@every_dialect
@pytest.mark.parametrize(
    ("ladder", "settings"),
    [
        ("observe", {}),
        ("block", {"enabled": False}),
        ("block", {"holdout": 1}),
        ("block", {"models": {"*": {"mode": "observe"}}}),
    ],
)
def test_what_is_only_observed_gets_none(kit: DialectKit, ladder: str, settings: dict[str, Any]) -> None:
    """Nothing of such a request changes."""
    request = without_names(kit, spin(2))
    assert sent(kit, request, ladder, **HINTED, **settings) == request.body


@every_dialect
@pytest.mark.parametrize(
    "own", [{"poller": True}, {"changes_state": True}, {"enabled": False}, {"mode": "observe"}], ids=str
)
def test_tools_that_may_be_called_again_get_none(kit: DialectKit, own: dict[str, Any]) -> None:
    """The hint would be wrong of them; all others have it."""
    heard = sent(kit, ask(kit, spin(1), stream=True), tool_hint=True, per_tool={"search": own})
    assert heard.count(HINT) == len(ask_tools(kit)) - 1


@every_dialect
@streamed_and_whole
def test_a_model_that_is_asked_again_has_them(kit: DialectKit, stream: bool) -> None:
    """Both requests of a steered exchange begin alike."""
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    request = ask(kit, spin(2), stream=stream)
    met = meet(request, replies, "chance_then_block", tool_hint=True)
    assert [heard.body.count(HINT) for heard in met.app.heard] == [len(ask_tools(kit))] * 2
    plain = meet(request, replies, "chance_then_block")
    assert met.body == plain.body


@every_dialect
def test_warnings_and_hints_get_along(kit: DialectKit) -> None:
    """A result with a warning has the same one beside a hint."""
    request = ask(kit, spin(4), stream=True)
    hinted = sent(kit, request, "warn", tool_hint=True)
    assert hinted.replace(b"\\n\\n" + HINT, b"") == sent(kit, request, "warn")


@every_dialect
def test_they_are_off_by_default(kit: DialectKit) -> None:
    """Then the request is that of the client."""
    request = without_names(kit, spin(1))
    assert sent(kit, request) == bare(request, [reply(kit, saying("Ok."), stream=True)]).app.heard[0].body


ROOM = 1024 - len(f"\n\n{LOOP_HINT}")


@pytest.mark.parametrize(
    ("length", "is_hinted"), [(0, True), (ROOM, True), (ROOM + 1, False), (1024, False), (1025, True)]
)
def test_a_description_is_not_made_too_long(length: int, is_hinted: bool) -> None:
    """OpenAI refuses more than 1,024 characters for some models; a longer one goes to a vendor that takes it."""
    kit = every_kit()[0]
    request = ask(kit, spin(1), stream=True)
    body = json.loads(request.body)
    body["tools"] = body["tools"][:1]
    body["tools"][0]["function"]["description"] = "x" * length
    heard = sent(kit, Request(request.path, json.dumps(body).encode(), request.headers), tool_hint=True)
    assert heard.count(HINT) == is_hinted


@every_dialect
@pytest.mark.parametrize(
    ("result", "is_empty"), [("[]", True), ("No results found.", True), ("", True), ("Paris", False), ("0", False)]
)
def test_no_results_are_told_from_paris(kit: DialectKit, result: str, is_empty: bool) -> None:
    """The guidance to a looping call says that an empty result is an answer."""
    rounds = [Round((same_call(f"call_{at}"),), (result,)) for at in range(2)]
    request = ask(kit, History((User("Find it."), *rounds)), stream=True)
    replies = [reply(kit, one, stream=True) for one in (again(), elsewhere())]
    first, second = meet(request, replies, "chance_then_block").app.heard
    assert (b"empty result" in second.body) == is_empty
    assert b"empty result" not in first.body


@pytest.mark.parametrize("has_ids", [True, False])
def test_ollama_s_results_may_name_nothing(has_ids: bool) -> None:
    """Then their order tells whose they are, and the names that they get do not change that."""
    kit = next(kit for kit in every_kit() if kit.name == "ollama")
    both = Round((known_call("call_a"), same_call("call_b")), ("one", "two"))
    request = without_names(kit, History((User("Find it."), both)))
    body = json.loads(request.body)
    for message in body["messages"]:
        if message["role"] == "tool" and not has_ids:
            message.pop("tool_call_id", None)
    request = Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)
    heard = sent(kit, request, tool_names=True)
    assert named(heard) == ["lookup", "search"]
    (before,), (after,) = ([one for one in read(kit, raw).rounds() if one] for raw in (request.body, heard))
    assert [(past.name, past.result) for past in after.calls] == [(past.name, past.result) for past in before.calls]


def test_gemini_s_responses_get_their_names() -> None:
    """Which the vendor demands; a response is known by its id."""
    kit = next(kit for kit in every_kit() if kit.name == "gemini")
    both = Round((known_call("call_a"), same_call("call_b")), ("one", "two"))
    request = ask(kit, History((User("Find it."), both)), stream=True)
    body = json.loads(request.body)
    responses = [part["functionResponse"] for part in body["contents"][-1]["parts"]]
    expected = [response.pop("name") for response in responses]
    bare_request = Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)
    heard = json.loads(sent(kit, bare_request, tool_names=True))
    assert [part["functionResponse"]["name"] for part in heard["contents"][-1]["parts"]] == expected
    assert sent(kit, request, tool_names=True) == request.body


def test_results_of_interactions_get_their_names() -> None:
    """A result is known by its call's id; a name that is there stays."""
    kit = next(kit for kit in every_kit() if kit.name == "gemini-interactions")
    both = Round((known_call("call_a"), same_call("call_b")), ("one", "two"))
    request = ask(kit, History((User("Find it."), both)), stream=True)
    body = json.loads(request.body)
    results = [step for step in body["input"] if step["type"] == "function_result"]
    expected = [step.pop("name") for step in results]
    bare_request = Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)
    heard = json.loads(sent(kit, bare_request, tool_names=True))
    assert [step["name"] for step in heard["input"] if step["type"] == "function_result"] == expected
    assert sent(kit, request, tool_names=True) == request.body
