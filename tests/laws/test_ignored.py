"""Arguments that do not tell calls apart: calls that differ in nothing else are one call, in requests and answers."""

import logging
from typing import Any

import pytest

from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, meet, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, User
from tests.support.plain import RESULT, elsewhere, known_call, saying

PER_TOOL: dict[str, Any] = {"per_tool": {"search": {"ignore": ["request_id"]}}}


def call(at: int, query: str = "zebra", key: str = "request_id") -> Call:
    """The same search each time but for its request id."""
    return Call(f"call_i{at}", "search", (f'{{"query": "{query}", ', f'"{key}": 90071992547409930{at}}}'))


def spinning(rounds: int, **more: str) -> History:
    """So many of them, each with the same result."""
    return History((User("Find it."), *(Round((call(at, **more),), (RESULT,)) for at in range(rounds))))


@every_dialect
@streamed_and_whole
def test_they_are_one_call(kit: DialectKit, stream: bool) -> None:
    """The third is withheld and the model asked again; without the setting all are news."""
    replies = [reply(kit, saying(call(2)), stream=stream), reply(kit, elsewhere(), stream=stream)]
    request = ask(kit, spinning(2), stream=stream)
    assert len(meet(request, replies, "chance_then_block", **PER_TOOL).app.heard) == 2
    assert meet(request, replies, "chance_then_block").body == replies[0].body


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("more", [{"query": "giraffe"}, {"key": "page"}])
def test_another_argument_is_another_call(kit: DialectKit, stream: bool, more: dict[str, str]) -> None:
    """Nothing but what is named does not matter."""
    answer = reply(kit, saying(call(2, **more)), stream=stream)
    assert meet(ask(kit, spinning(2), stream=stream), [answer], "block", **PER_TOOL).body == answer.body


@every_dialect
@streamed_and_whole
def test_a_steered_call_that_comes_again_is_blocked(kit: DialectKit, stream: bool) -> None:
    """With yet another request id."""
    replies = [reply(kit, saying(call(at)), stream=stream) for at in (2, 3)]
    met = meet(ask(kit, spinning(2), stream=stream), replies, "chance_then_block", **PER_TOOL)
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == ()
    assert MARK in view.text


@every_dialect
def test_warnings_find_their_results(kit: DialectKit) -> None:
    """A warning stands on the result of its own call."""
    met = meet(ask(kit, spinning(4), stream=True), [reply(kit, saying("Done."), stream=True)], "warn", **PER_TOOL)
    assert [MARK in text for _, text in kit.results(met.app.heard[0].body)] == [False, False, True, True]


@every_dialect
def test_notes_and_places_come_back(kit: DialectKit) -> None:
    """What the ledger keeps of such calls it finds again: the note on a withheld sibling, the place on the ladder."""
    sibling = known_call("call_kept")
    history = spinning(2).and_then(Round((known_call("call_k0"),), (RESULT,)), *spinning(2).turns[1:])
    both: Answer = saying(call(2), sibling)

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, history, stream=True), reply(kit, both, stream=True))
        after = history.and_then(Round((sibling,), (RESULT,)))
        await session.exchange(ask(kit, after, stream=True), reply(kit, saying(call(3)), stream=True))

    first, second = in_session(talk, "block", **PER_TOOL).meetings
    assert b"call_i2" not in first.body
    assert MARK in kit.results(second.app.heard[0].body)[-1][1]


@every_dialect
@streamed_and_whole
def test_what_was_delivered_is_known_again(kit: DialectKit, stream: bool) -> None:
    """A streak is told at WARNING once, for the ledger knows the calls that went through."""

    async def talk(session: Session) -> None:
        for rounds in (2, 3):
            answer = reply(kit, saying(call(rounds)), stream=stream)
            await session.exchange(ask(kit, spinning(rounds), stream=stream), answer)

    meetings = in_session(talk, "observe", **PER_TOOL).meetings
    levels = [[level for _, level, text in met.log if "loop detected" in text] for met in meetings]
    assert levels == [[logging.WARNING], [logging.INFO]]
