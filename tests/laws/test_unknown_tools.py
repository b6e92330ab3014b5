"""Calls of tools that the request does not declare: a chance for the third, whatever the tools and arguments.

Where the request does not list its tools, results tell which do not exist: a warning goes with the third of them, and a
call of such a tool takes the ladder.
"""

import json
from logging import ERROR
from typing import Any

import pytest

from tests.support.asgi import Request
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User, seen
from tests.support.plain import elsewhere, new_call, saying

NAMES = ("find_zebra", "seek", "hunt")


def called(at: int, name: str) -> Call:
    """A call that is like no other."""
    return Call(f"call_u{at}", name, (f'{{"n": {at}}}',))


def lost(*names: str) -> History:
    """Rounds with a call of each of these."""
    rounds = [Round((called(at, name),), (f"Error: no tool {name}",)) for at, name in enumerate(names)]
    return History((User("Find the zebra crossing."), *rounds))


@every_dialect
@streamed_and_whole
def test_the_third_unknown_tool_is_steered(kit: DialectKit, stream: bool) -> None:
    """The model is told that there is no such tool, and asked again in the same answer."""
    replies = [reply(kit, saying(called(2, NAMES[2])), stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, lost(*NAMES[:2]), stream=stream), replies, "chance_then_block")
    assert len(met.app.heard) == 2
    told = kit.results(met.app.heard[1].body)[-1][1]
    assert told.startswith(MARK)
    assert "call 3 in a row of a tool that does not exist, here hunt" in told
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == (seen(new_call("call_second")),)
    assert b"hunt" not in met.body


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_an_answer_with_nothing_but_a_nameless_call(kit: DialectKit, ladder: str, stream: bool) -> None:
    """No client can execute it, so there is nothing to judge; also in place of a call that was withheld."""
    for said in ([], ["Hm."]):
        nameless = reply(kit, saying(*said, called(2, " "), tag="second"), stream=stream)
        request = ask(kit, lost(*NAMES[:2]), stream=stream)
        alone = meet(request, [nameless], ladder)
        assert alone.body == nameless.body
        assert alone.log_at(ERROR) == []
        first = reply(kit, saying(called(2, NAMES[2])), stream=stream)
        assert meet(request, [first, nameless], ladder).log_at(ERROR) == []


@every_dialect
@pytest.mark.parametrize("names", [NAMES[:1], ("find_zebra", "search"), ("search", "seek")])
def test_fewer_in_a_row_are_left_alone(kit: DialectKit, names: tuple[str, ...]) -> None:
    """A tool that is declared ends the streak."""
    answer = reply(kit, saying(called(2, NAMES[2])), stream=True)
    met = meet(ask(kit, lost(*names), stream=True), [answer], "block")
    assert met.body == answer.body


@every_dialect
def test_a_list_that_is_not_complete_proves_nothing(kit: DialectKit) -> None:
    """The call may be of a tool that the request does not name."""
    answer = reply(kit, saying(called(2, NAMES[2])), stream=True)
    assert meet(unlisted(ask(kit, lost(*NAMES[:2]), stream=True)), [answer], "block").body == answer.body


def unlisted(request: Request) -> Request:
    """The same request with an entry that may bring any tool."""
    body: dict[str, Any] = json.loads(request.body)
    body.get("toolConfig", body)["tools"].append({"type": "mcp", "server_label": "zoo"})
    return Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)


def told_of(*names: str) -> History:
    """Rounds with a call of each of these, of which its result says that it does not exist."""
    rounds = [Round((called(at, name),), (f"Unknown tool: {name}",)) for at, name in enumerate(names)]
    return History((User("Find the zebra crossing."), *rounds))


@every_dialect
@streamed_and_whole
def test_a_tool_that_results_told_of_is_steered(kit: DialectKit, stream: bool) -> None:
    """The third call of it, in the same answer and without a byte of it, though the list of tools is not complete."""
    replies = [reply(kit, saying(called(2, NAMES[0])), stream=stream), reply(kit, elsewhere(), stream=stream)]
    asked = unlisted(ask(kit, told_of(NAMES[0], NAMES[1]), stream=stream))
    met = meet(asked, replies, "chance_then_block")
    assert len(met.app.heard) == 2
    told = kit.results(met.app.heard[1].body)[-1][1]
    assert told.startswith(MARK)
    assert "call 3 in a row of a tool that does not exist, here find_zebra" in told
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == (seen(new_call("call_second")),)
    assert NAMES[0].encode() not in met.body


@every_dialect
@streamed_and_whole
def test_the_third_result_carries_a_warning(kit: DialectKit, stream: bool) -> None:
    """Whatever the ladder; a call of another tool passes, for it may exist."""
    answer = reply(kit, saying(called(3, "track")), stream=stream)
    met = meet(unlisted(ask(kit, told_of(*NAMES), stream=stream)), [answer], "block")
    results = [text for _, text in kit.results(met.app.heard[0].body)]
    assert [MARK in text for text in results] == [False, False, True]
    assert "call 3 in a row of a tool that does not exist, here hunt" in results[-1]
    assert met.body == answer.body


@every_dialect
def test_a_tool_that_has_also_succeeded_is_left_alone(kit: DialectKit) -> None:
    """It was there, and may come back."""
    history = told_of(*NAMES[:1] * 2)
    worked = Round((called(9, NAMES[0]),), ("A zebra crossing.",))
    found = History((history.turns[0], worked, *history.turns[1:]))
    answer = reply(kit, saying(called(2, NAMES[0])), stream=True)
    request = unlisted(ask(kit, found, stream=True))
    met = meet(request, [answer], "block")
    assert met.body == answer.body
    assert met.app.heard[0].body == request.body
