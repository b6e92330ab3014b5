"""Calls of tools that the request does not declare: a chance for the third, whatever the tools and arguments."""

import json
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
@pytest.mark.parametrize("names", [NAMES[:1], ("find_zebra", "search"), ("search", "seek")])
def test_fewer_in_a_row_are_left_alone(kit: DialectKit, names: tuple[str, ...]) -> None:
    """A tool that is declared ends the streak."""
    answer = reply(kit, saying(called(2, NAMES[2])), stream=True)
    met = meet(ask(kit, lost(*names), stream=True), [answer], "block")
    assert met.body == answer.body


@every_dialect
def test_a_list_that_is_not_complete_proves_nothing(kit: DialectKit) -> None:
    """The call may be of a tool that the request does not name."""
    request = ask(kit, lost(*NAMES[:2]), stream=True)
    body: dict[str, Any] = json.loads(request.body)
    body["tools"].append({"type": "mcp", "server_label": "zoo"})
    answer = reply(kit, saying(called(2, NAMES[2])), stream=True)
    asked = Request(request.path, json.dumps(body).encode(), request.headers, query=request.query)
    assert meet(asked, [answer], "block").body == answer.body
