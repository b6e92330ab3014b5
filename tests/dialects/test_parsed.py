"""A request that has dropped its parsed body answers as it would have before, in all dialects."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects import dialect_of
from callfuse.dialects.base import Note, Request
from callfuse.jsontext import loads
from tests.support.asgi import run
from tests.support.config import guard
from tests.support.kits import DialectKit, target_of
from tests.support.meeting import ask, every_dialect, reply
from tests.support.plain import saying, spin
from tests.support.scripted import play
from tests.support.streams import looping


def read(kit: DialectKit, body: bytes) -> Request:
    """The request of a body."""
    path, _ = target_of(kit, stream=True)
    dialect = dialect_of(path)
    assert dialect
    request = dialect.read_request(body, loads(body), path)
    assert request
    return request


def newest_note(request: Request) -> Note:
    """A note on the newest call."""
    newest = next(round_ for round_ in request.rounds() if round_)
    return Note(newest.position, newest.calls[0], "A note.")


QUESTIONS: dict[str, Callable[[Request], Any]] = {
    "rounds": lambda request: [
        round_ and (round_.position, [(call.id, call.signature, call.outcome) for call in round_.calls])
        for round_ in request.rounds()
    ],
    "turn": lambda request: request.turn(),
    "opening": lambda request: list(request.opening()),
    "declares": lambda request: [request.declares(name) for name in ("search", "no_such_tool")],
    "notes": lambda request: request.with_notes([newest_note(request)]),
    "typed": lambda request: [request.typed(at) for at in range(request.length)],
    "structured": lambda request: request.structured,
}


@every_dialect
@given(data=st.data())
def test_what_is_dropped_is_found_again(kit: DialectKit, data: st.DataObject) -> None:
    """Whatever is asked first; and what there has never been is not there."""
    body = ask(kit, data.draw(looping(before=3)), stream=True).body
    kept, dropped = read(kit, body), read(kit, body)
    for question in QUESTIONS.values():
        dropped.drop_parsed()
        assert question(dropped) == question(kept)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = dropped.nothing_like_it  # type: ignore[attr-defined]


def test_a_chain_may_bring_nothing() -> None:
    """A request that only names the response before it has no items, before and after."""
    body = b'{"model":"m","previous_response_id":"resp_1"}'
    dialect = dialect_of("/v1/responses")
    assert dialect
    request = dialect.read_request(body, loads(body))
    assert request
    assert list(request.rounds()) == []
    request.drop_parsed()
    assert list(request.rounds()) == []


def payloads() -> list[dict[str, Any]]:
    """The parsed requests that are in memory."""
    keys = {"messages", "input", "contents"}
    return [one for one in gc.get_objects() if type(one) is dict and not keys.isdisjoint(one) and "tools" in one]


@every_dialect
def test_none_is_held_while_a_healthy_answer_comes(kit: DialectKit) -> None:
    """However long that takes."""
    script = play(reply(kit, saying("Well."), stream=True))
    before = {id(one) for one in payloads()}
    held: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            held.extend(one for one in payloads() if id(one) not in before)
        await script(scope, receive, send)

    request = ask(kit, spin(1), stream=True)
    assert read(kit, request.body).probe is False
    run(guard(app, "block"), request)
    assert not held
