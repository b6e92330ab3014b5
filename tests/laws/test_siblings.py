"""Law 7, innocent siblings survive: the looping calls go, the others stay as they are and are not asked for again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config import ACTING, ONLY_REPEATS
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, meet, reply, streamed_and_whole
from tests.support.model import History, Round, User
from tests.support.oracle import loops
from tests.support.plain import OTHER_RESULT, RESULT, known_call, same_call, saying, spin
from tests.support.rules import violations
from tests.support.streams import KNOWN, answers, chunkings, looping
from tests.support.wire import quiet

MIXED = [[KNOWN[0], KNOWN[1]], [KNOWN[1], KNOWN[0]], [KNOWN[1], KNOWN[0], KNOWN[3]], [KNOWN[0], KNOWN[3], KNOWN[0]]]


@every_dialect
@given(data=st.data())
def test_the_rest_reads_as_if_the_loop_had_never_been(kit: DialectKit, data: st.DataObject) -> None:
    """The client's bytes are those of the answer without the looping calls: renumbered, otherwise untouched."""
    history = data.draw(looping(beside=True))
    answer = data.draw(answers(kit, data.draw(st.sampled_from(MIXED)), plain=True))
    script = reply(kit, answer, stream=True)
    gone = frozenset((at, call.id) for at in range(len(answer.choices)) for call in loops(history, answer.calls(at)))
    ladder = data.draw(st.sampled_from(ACTING))
    request = ask(kit, history, stream=True, n=len(answer.choices))
    met = meet(request, [script.cut(data.draw(chunkings(script.body)))], ladder, **ONLY_REPEATS)
    wanted = stream_of(kit, answer.without(gone))
    if len(answer.choices) > 1:
        # Choices wait apart from each other, so that only the order within each of them is fixed.
        assert kit.read(met.body, stream=True) == kit.read(wanted, stream=True)
        assert kit.faults(met.body) == []
    else:
        assert quiet(met.body) == wanted
    assert len(met.app.heard) == 1, "a round with a survivor is not asked again"


@every_dialect
@given(data=st.data())
def test_whole_answers_keep_their_survivors(kit: DialectKit, data: st.DataObject) -> None:
    """The same for whole answers, value for value."""
    history = data.draw(looping(beside=True))
    answer = data.draw(answers(kit, data.draw(st.sampled_from(MIXED))))
    gone = frozenset((at, call.id) for at in range(len(answer.choices)) for call in loops(history, answer.calls(at)))
    request = ask(kit, history, stream=False, n=len(answer.choices))
    met = meet(request, [reply(kit, answer, stream=False)], data.draw(st.sampled_from(ACTING)), **ONLY_REPEATS)
    assert json.loads(met.body) == json.loads(kit.whole(answer.without(gone)))
    assert len(met.app.heard) == 1


SPINNING = spin(beside=True)
PARALLEL = saying("Both at once.", same_call(), known_call("call_kept"))


def kept_round() -> Round:
    """What the client has of that answer, with its result."""
    return Round((known_call("call_kept"),), (OTHER_RESULT,), "Both at once.")


def notes(kit: DialectKit, request: bytes) -> dict[str, str]:
    """What was added to results, by call id."""
    return {call_id: text for call_id, text in kit.results(request) if MARK in text}


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ACTING)
def test_the_model_learns_of_it_with_the_survivors_results(kit: DialectKit, stream: bool, ladder: str) -> None:
    """The note reaches the model in the survivor's own result, word for word the same in each later request."""
    following = SPINNING.and_then(kept_round())
    later = following.and_then(Round((known_call("call_k9"),), ("other news",)), User("Thanks. And now?"))

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, SPINNING, stream=stream), reply(kit, PARALLEL, stream=stream))
        for history in (following, following, later):
            await session.exchange(ask(kit, history, stream=stream), reply(kit, saying("Ok."), stream=stream))

    first, *rest = in_session(talk, ladder).meetings
    assert [len(met.app.heard) for met in (first, *rest)] == [1, 1, 1, 1]
    told = [notes(kit, met.app.heard[0].body) for met in rest]
    assert list(told[0]) == ["call_kept"]
    assert told[0] == told[1] == told[2]
    assert told[0]["call_kept"].startswith(OTHER_RESULT)
    assert "search" in told[0]["call_kept"]
    for met in rest:
        assert violations(kit.name, json.loads(met.app.heard[0].body)) == []


@every_dialect
def test_the_sdks_replay_of_a_thinned_answer_is_accepted(kit: DialectKit) -> None:
    """The next turn that an agent builds from the thinned answer is valid, before and after callfuse."""
    met = meet(ask(kit, SPINNING, stream=True), [reply(kit, PARALLEL, stream=True)])
    (view,) = kit.sdk(met.body, stream=True)
    assert [call.id for call in view.calls] == ["call_kept"]
    following = kit.replay(SPINNING, met.body, stream=True, result=RESULT)
    assert violations(kit.name, json.loads(following)) == []
    before = kit.results(kit.request(SPINNING, stream=True))
    assert [text for _, text in kit.results(following)] == [*(text for _, text in before), RESULT]


@every_dialect
def test_identical_calls_of_one_round_are_one_piece_of_evidence(kit: DialectKit) -> None:
    """Three equal calls in each round count as one would: two rounds are no loop yet, the third is, and all of it
    goes. A pair is too few to be a loop within its answer."""
    pair = saying(*(same_call(f"call_p{at}") for at in range(2)))
    go = History((User("Go."),))
    for rounds in range(3):
        history = go.and_then(*(triple(f"call_r{at}") for at in range(rounds)))
        met = meet(ask(kit, history, stream=True), [reply(kit, pair, stream=True)])
        if rounds < 2:
            assert met.body == stream_of(kit, pair)
        else:
            assert b"call_p" not in met.body


def triple(prefix: str) -> Round:
    """A round of three equal calls, as an agent has it whose rounds came by another way."""
    return Round(tuple(same_call(f"{prefix}n{at}") for at in range(3)), (RESULT,) * 3)


def test_the_fixture_spins() -> None:
    """The conversation that these tests spin on is what they take it to be."""
    assert loops(SPINNING, PARALLEL.calls()) == (same_call(),)
