"""A request that has dropped its parsed body answers as it would have before, in all dialects."""

import gc
import pickle
from collections.abc import Callable
from copy import copy
from typing import Any, Final

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
from tests.support.model import Call, History, Round, User
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


@every_dialect
@pytest.mark.parametrize("copied", [copy, lambda request: pickle.loads(pickle.dumps(request))], ids=["copy", "pickle"])
def test_a_copy_is_the_same(kit: DialectKit, copied: Callable[[Request], Request]) -> None:
    """Of a request that has dropped its parsed body, too."""
    request = read(kit, ask(kit, spin(), stream=True).body)
    request.drop_parsed()
    for question in QUESTIONS.values():
        assert question(copied(request)) == question(request)


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


LONG: Final = 20


def parsed() -> list[object]:
    """The parsed requests that are in memory, and the long histories without the rest of theirs."""
    keys, marks = {"messages", "input", "contents"}, {"role", "type"}
    found = gc.get_objects()
    requests = [one for one in found if type(one) is dict and "tools" in one and not keys.isdisjoint(one)]
    lists = [one for one in found if type(one) is list and len(one) > LONG and type(one[0]) is dict]
    return [*requests, *[one for one in lists if not marks.isdisjoint(one[0])]]


def read_page(page: int) -> Call:
    """A call that is made once."""
    return Call(f"call_p{page}", "lookup", (f'{{"page": {page}}}',))


@every_dialect
@pytest.mark.usefixtures("frozen_heap")
@pytest.mark.parametrize("seen", [0, 2], ids=["unknown", "known"])
def test_none_is_held_while_a_healthy_answer_comes(kit: DialectKit, seen: int) -> None:
    """However long that takes, and whatever the ledger knows of the conversation."""
    script = play()
    before = {id(one) for one in parsed()}
    held: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            held.extend(one for one in parsed() if id(one) not in before)
        await script(scope, receive, send)

    guarded = guard(app, "block")
    for page in range(LONG - seen, LONG + 1):
        pages = [Round((read_page(at),), ("A page.",)) for at in range(page)]
        asked = ask(kit, History((User("Read it all."), *pages)), stream=True)
        script.replies = (reply(kit, saying(read_page(page)), stream=True),)
        assert read(kit, asked.body).probe is False
        run(guarded, asked)
    assert not held
