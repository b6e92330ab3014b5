"""Law 2, split-blind: how the upstream bytes are cut changes nothing, neither on the wire nor in the verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config import LADDERS
from tests.support.kits import DialectKit
from tests.support.meeting import Meeting, ask, every_dialect, meet, reply
from tests.support.model import Answer
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply
from tests.support.streams import KNOWN, answers, chunkings, fresh, looping

SHAPES = [
    [KNOWN[0]],
    [KNOWN[0], KNOWN[1]],
    [KNOWN[1], KNOWN[0], KNOWN[3]],
    [KNOWN[0], KNOWN[0]],
    [KNOWN[0], fresh(0)],
    [],
]
"""Answers to a conversation that spins on the first known call: alone, beside survivors, twice, beside a new call."""


def outcome(met: Meeting) -> tuple[object, ...]:
    """All that must not depend on the cuts."""
    asked = [(heard.body, heard.headers) for heard in met.app.heard]
    return met.body, met.client.start, met.client.complete, repr(met.client.raised), asked, met.log


@every_dialect
@given(data=st.data())
def test_any_two_ways_to_cut_are_one(kit: DialectKit, data: st.DataObject) -> None:
    """Whole, byte by byte or cut anywhere, in the first answer and the second: same bytes, same requests, same log."""
    history = data.draw(looping(beside=True))
    first = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES))))
    second = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), tag="second", many=False))
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    request = ask(kit, history, stream=True, n=len(first.choices))

    def scripts(*, cuts: bool) -> list[Reply]:
        return [_cut(kit, answer, data, cuts=cuts) for answer in (first, second)]

    assert outcome(meet(request, scripts(cuts=True), ladder)) == outcome(meet(request, scripts(cuts=False), ladder))


@every_dialect
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_keep_alive_behind_the_end(kit: DialectKit, ladder: str) -> None:
    """It stays behind the verdict, whatever chunk it comes in."""
    frames = [frame.raw for frame in kit.frames(again())]
    beat = b": beat\n\n" if frames[0].startswith((b"data:", b"event:")) else b"\n"
    for at in range(1, len(frames) + 1):
        chunks = (*frames[:at], beat, *frames[at:])
        scripts = [(Reply(one), reply(kit, elsewhere(), stream=True)) for one in (chunks, (b"".join(chunks),))]
        apart, joined = (outcome(meet(ask(kit, spin(), stream=True), script, ladder)) for script in scripts)
        assert apart == joined


def _cut(kit: DialectKit, answer: Answer, data: st.DataObject, *, cuts: bool) -> Reply:
    script = reply(kit, answer, stream=True)
    return script.cut(data.draw(chunkings(script.body))) if cuts else script


@every_dialect
@given(data=st.data())
def test_whole_answers_may_come_in_pieces(kit: DialectKit, data: st.DataObject) -> None:
    """A JSON answer that an app sends in pieces is judged and changed like one sent whole."""
    history = data.draw(looping(beside=True))
    first = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES))))
    second = data.draw(answers(kit, [], tag="second", many=False))
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    request = ask(kit, history, stream=False, n=len(first.choices))
    scripts = [reply(kit, answer, stream=False) for answer in (first, second)]
    pieces = [script.cut(data.draw(chunkings(script.body))) for script in scripts]
    assert outcome(meet(request, scripts, ladder)) == outcome(meet(request, pieces, ladder))
