"""Law 12, next turn: the history that a client builds from what it was given is one that the vendor takes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Request
from tests.support.config import LADDERS
from tests.support.kits import DialectKit
from tests.support.meeting import Session, ask, every_dialect, in_session, reply, streamed_and_whole
from tests.support.plain import RESULT, again, saying, spin, thinking
from tests.support.rules import violations
from tests.support.streams import KNOWN, answers, fresh, looping

SHAPES = [
    [KNOWN[0]],
    [KNOWN[0], KNOWN[0]],
    [KNOWN[1], KNOWN[0]],
    [KNOWN[0], KNOWN[1], KNOWN[3]],
    [KNOWN[0], fresh(0)],
    [fresh(0), fresh(1)],
    [],
]


@pytest.mark.slow
@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_every_answer_can_be_sent_back(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Spliced, blocked, thinned or untouched: the official SDK's replay passes, as built and as the vendor gets it."""
    history = data.draw(looping(beside=True))
    first = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), many=False, plain=True))
    later = [
        data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), many=False, plain=True, tag=tag))
        for tag in ("second", "third", "fourth")
    ]
    replies = [reply(kit, answer, stream=stream) for answer in (first, *later)]

    async def talk(session: Session) -> None:
        met = await session.exchange(ask(kit, history, stream=stream), *replies)
        following = kit.replay(history, met.body, stream=stream, result=RESULT)
        await session.exchange(Request(kit.path, following), reply(kit, saying("Ok."), stream=False))

    met, next_turn = in_session(talk, data.draw(st.sampled_from(list(LADDERS)))).meetings
    following = kit.replay(history, met.body, stream=stream, result=RESULT)
    assert violations(kit.name, json.loads(following)) == []
    assert violations(kit.name, json.loads(next_turn.app.heard[0].body)) == []


@every_dialect
@streamed_and_whole
def test_a_blocked_answer_with_thinking_can_be_sent_back(kit: DialectKit, stream: bool) -> None:
    """Thinking keeps its signature and its place before the block's text."""
    answer = saying(thinking(), *again().choices[0])

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, spin(), stream=stream), reply(kit, answer, stream=stream))

    (met,) = in_session(talk).meetings
    following = kit.replay(spin(), met.body, stream=stream, result=RESULT)
    assert violations(kit.name, json.loads(following)) == []
    assert kit.said(following).thinking == thinking().text
    if kit.name == "anthropic":
        said = [turn for turn in json.loads(following)["messages"] if turn["role"] == "assistant"][-1]
        assert [block["type"] for block in said["content"]][:2] == ["thinking", "text"]
        assert said["content"][0]["signature"] == thinking().signature
