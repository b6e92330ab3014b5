"""Laws 2 to 5, 7 and 12 for calls inside one answer: equal ones, more than a budget has left, and floods.

The first calls go. From the first that may be one too many on the answer is held, what is too much is taken out, and an
answer that is not worth waiting for is cut short: the app is left, and the client's stream ends as its dialect does.
"""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config import ONLY_REPEATS
from tests.support.examples import some
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    framewise,
    ids_of,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Answer, Call, History, Round, Text, User, seen
from tests.support.plain import RESULT, new_call, saying, spin
from tests.support.rules import violations
from tests.support.scripted import Reply
from tests.support.streams import KNOWN, answers, chunkings

FRESH = History((User("Find the giraffe."),))


OTHERS = tuple(Call(f"call_n{at}", name, (json.dumps(value),)) for at, (name, value) in enumerate(KNOWN, 1))


def known(history: History, others: tuple[Call, ...] = OTHERS[1:2]) -> History:
    """The conversation, with rounds before it that have brought the call that is to come, and others."""
    user, *rounds = history.turns
    first = Round((new_call("call_n0"),), (RESULT,)), Round(others, (RESULT,) * len(others))
    return History((user, *first, *rounds))


CONVERSATIONS = pytest.mark.parametrize("history", [known(FRESH), known(spin(beside=True))], ids=["healthy", "suspect"])


def equal(times: int, prefix: str = "call_e") -> list[Call]:
    """The same new call so many times."""
    return [new_call(f"{prefix}{at}Q") for at in range(times)]


def different(times: int) -> list[Call]:
    """As many calls of which no two are the same."""
    return [Call(f"call_d{at}Q", "search", ('{"query": ', f'"number {at}"}}')) for at in range(times)]


def check(kit: DialectKit, met: Meeting, answer: Answer, kept: list[Call], *, stream: bool) -> None:
    """The client has exactly these calls, in an answer that is valid and ends as one with calls."""
    assert met.client.status == 200
    assert met.client.complete
    assert met.client.raised is None
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.read(met.body, stream=stream)
    assert kit.sdk(met.body, stream=stream) == (view,)
    assert view.calls == tuple(map(seen, kept))
    assert view.finish == kit.called
    assert MARK not in view.text
    if not stream:
        assert met.client.header(b"content-length") == str(len(met.body)).encode()
        assert met.client.header(b"x-callfuse-action")
    gone = [call for call in answer.calls() if call not in kept]
    assert not any(call_id in met.body for call_id in ids_of(gone))
    assert len(met.app.heard) == 1


@every_dialect
def test_a_choice_behind_one_that_has_finished(kit: DialectKit) -> None:
    """Some vendors give more choices than are asked for. One may have finished before the call that is one too many."""
    if kit.most_choices == 1:
        pytest.skip("its answers have one choice")
    answer = Answer(((Text(("So",)), *different(1)), (Text(("So",)), *equal(3))))
    met = meet(ask(kit, known(FRESH), stream=True), [framewise(kit, answer)])
    one, other = kit.read(met.body, stream=True)
    assert one.calls == tuple(map(seen, different(1)))
    assert other.calls == tuple(map(seen, equal(2)))


@every_dialect
@streamed_and_whole
@CONVERSATIONS
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_the_third_equal_call_goes(kit: DialectKit, stream: bool, history: History, ladder: str) -> None:
    """It and those after it are withheld; others stay, new ones too, which free no equal ones."""
    *same, last = equal(5)
    new = different(2)
    answer = saying("Let me look.", *same, *new, last)
    met = meet(ask(kit, history, stream=stream), [reply(kit, answer, stream=stream)], ladder)
    check(kit, met, answer, [*same[:2], *new], stream=stream)
    assert any("kind=repeat" in line for line in met.log_at(logging.WARNING))


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("history", [FRESH, spin(beside=True)], ids=["healthy", "suspect"])
def test_five_equal_calls_that_are_new_stay(kit: DialectKit, stream: bool, history: History) -> None:
    """Three dice, four equal sub-agents: they go as they came. Of seven, the sixth and the seventh are withheld."""
    answer = reply(kit, saying("Let me look.", *equal(5)), stream=stream)
    assert meet(ask(kit, history, stream=stream), [answer]).body == answer.body
    many = saying("Let me look.", *equal(7))
    met = meet(ask(kit, history, stream=stream), [reply(kit, many, stream=stream)])
    check(kit, met, many, equal(5), stream=stream)


@every_dialect
@CONVERSATIONS
@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_stream_that_names_no_content_type(kit: DialectKit, history: History, size: int) -> None:
    """Its first bytes tell, as ChatGPT's backend for Codex has it."""
    answer = saying("Let me look.", *equal(5))
    body = stream_of(kit, answer)
    chunks = tuple(body[at : at + size] for at in range(0, len(body), size)) if size else (body,)
    met = meet(ask(kit, history, stream=True), [Reply(chunks, headers=())])
    check(kit, met, answer, equal(5)[:2], stream=True)


@every_dialect
@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_healthy_one_passes(kit: DialectKit, size: int) -> None:
    """Byte for byte; blanks before it, which keep a connection open, at once."""
    blanks = b"" if kit.name == "bedrock-converse" else b"\n" * 20
    body = blanks + stream_of(kit, saying("Hi."))
    chunks = tuple(body[at : at + size] for at in range(0, len(body), size)) if size else (body,)
    met = meet(ask(kit, FRESH, stream=True), [Reply(chunks, headers=())])
    assert met.body == body
    assert met.client.complete
    if size == 1:
        assert met.client.lengths(len(blanks)) == [*range(1, len(blanks) + 1)]


@every_dialect
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_whole_answer_without_a_content_type_is_judged_as_one_with_it(kit: DialectKit, ladder: str) -> None:
    """Its first byte tells that it is one, and the rest of it waits for its end."""
    answer = saying("Let me look.", *equal(5))
    request, body = ask(kit, known(FRESH), stream=False), kit.whole(answer)
    met = meet(request, [Reply((body[:1], body[1:]), headers=())], ladder)
    declared = meet(request, [reply(kit, answer, stream=False)], ladder)
    assert met.body == declared.body
    assert met.body != body
    assert met.log == declared.log


@every_dialect
@streamed_and_whole
@CONVERSATIONS
def test_budgets_count_the_answer(kit: DialectKit, stream: bool, history: History) -> None:
    """The first calls go until nothing is left."""
    calls = different(9)
    most = 4 + sum(1 for turn in history.turns if not isinstance(turn, User))
    met = meet(ask(kit, history, stream=stream), [reply(kit, saying(*calls), stream=stream)], max_calls=most)
    check(kit, met, saying(*calls), calls[:4], stream=stream)


@every_dialect
@streamed_and_whole
@CONVERSATIONS
def test_a_flood(kit: DialectKit, stream: bool, history: History) -> None:
    """No more calls go than one answer may have, and one finding tells of all that do not."""
    calls = different(9)
    answer = saying("Let me look.", *calls)
    met = meet(ask(kit, history, stream=stream), [reply(kit, answer, stream=stream)], max_calls_per_answer=5)
    check(kit, met, answer, calls[:5], stream=stream)
    assert sum("kind=flood" in text for _, _, text in met.log) == 1


@pytest.mark.slow
@every_dialect
@CONVERSATIONS
@pytest.mark.parametrize("calls", [equal(60), different(200)], ids=["equal", "different"])
def test_an_answer_without_end_is_cut(kit: DialectKit, history: History, calls: list[Call]) -> None:
    """The app is left in the middle of it: nothing is paid for that nobody gets."""
    answer = saying("Let me look.", *calls)
    script = framewise(kit, answer)
    met = meet(ask(kit, history, stream=True), [script])
    check(kit, met, answer, calls[:2] if calls == equal(60) else calls[:128], stream=True)
    assert met.app.cancelled or met.app.turn < len(script.chunks) * 3 / 4


@every_dialect
@CONVERSATIONS
@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_what_only_watches_leaves_it_alone(kit: DialectKit, history: History, ladder: str) -> None:
    """Nothing is withheld, and nothing cut; each finding is told."""
    answer = saying("Let me look.", *equal(8))
    script = framewise(kit, answer)
    met = meet(ask(kit, history, stream=True), [script], ladder)
    assert met.body == script.body
    assert met.app.turn == len(script.chunks)
    assert any("kind=repeat" in line for line in met.log_at(logging.WARNING))


@every_dialect
@CONVERSATIONS
def test_pollers_may_ask_more_often(kit: DialectKit, history: History) -> None:
    """Their limits are higher by a factor, here too."""
    polls = [Call(f"call_p{at}Q", "wait_for_job", ('{"id": 1}',)) for at in range(14)]
    script = framewise(kit, saying(*polls))
    assert meet(ask(kit, history, stream=True), [script]).body == script.body


SHAPES = [
    [KNOWN[1]] * 3,
    [KNOWN[1], KNOWN[2], KNOWN[1], KNOWN[3], KNOWN[1], KNOWN[1]],
    [KNOWN[1]] * 9,
    [KNOWN[2], *[KNOWN[3]] * 7, KNOWN[1]],
    [*KNOWN, *KNOWN, *KNOWN],
]


@every_dialect
@pytest.mark.parametrize(
    "history", [known(FRESH, OTHERS), known(spin(beside=True), OTHERS)], ids=["healthy", "suspect"]
)
@given(data=st.data())
def test_any_two_ways_to_cut_are_one(kit: DialectKit, history: History, data: st.DataObject) -> None:
    """However the bytes come: same bytes, same log, and no call that is one too many."""
    answer = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), many=False))
    whole = reply(kit, answer, stream=True)
    ladder = data.draw(st.sampled_from(["block", "chance_then_block", "graduated"]))
    request = ask(kit, history, stream=True)
    scripts = [whole, *(whole.cut(data.draw(chunkings(whole.body))) for _ in range(2))]
    met = [meet(request, [script], ladder, **ONLY_REPEATS) for script in scripts]
    assert len({(one.body, one.log, one.client.complete) for one in met}) == 1
    (view,) = kit.read(met[0].body, stream=True)
    most = 5 if ladder == "graduated" else 2
    assert max((view.calls.count(call) for call in view.calls), default=0) <= most
    assert kit.faults(met[0].body) == []


@every_dialect
@CONVERSATIONS
def test_the_note_reaches_the_model(kit: DialectKit, history: History) -> None:
    """With a survivor's result, in each later request alike. For the rounds after it the equal calls, delivered or
    withheld, are one piece of evidence."""
    kept = equal(2)
    following = history.and_then(Round(tuple(kept), (RESULT, RESULT)))

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, history, stream=True), framewise(kit, saying("Let me look.", *equal(8))))
        for _ in range(2):
            await session.exchange(ask(kit, following, stream=True), framewise(kit, saying(new_call("call_laterQ"))))

    _, *later = in_session(talk).meetings
    told = [kit.results(met.app.heard[0].body) for met in later]
    assert told[0] == told[1]
    own = [text for _, text in told[0] if MARK in text]
    assert len(own) == 1
    assert own[0].count(MARK) == 1
    assert "call 3 of search in one answer with the same arguments" in own[0]
    assert all(b"call_laterQ" in met.body and MARK.encode() not in met.body for met in later)


@every_dialect
@CONVERSATIONS
def test_the_sdks_replay_of_a_cut_answer_is_accepted(kit: DialectKit, history: History) -> None:
    """The next turn that an agent builds from it is valid."""
    met = meet(ask(kit, history, stream=True), [framewise(kit, saying("Let me look.", *equal(8)))])
    following = kit.replay(history, met.body, stream=True, result=RESULT)
    assert violations(kit.name, json.loads(following)) == []


@pytest.mark.search
@every_dialect
@pytest.mark.parametrize("limit", [600, 1000, 1500, 2000, 3000])
def test_a_limit_at_the_handover_loses_no_byte(kit: DialectKit, limit: int) -> None:
    """What has come of a frame when a guard goes on is the guard's: it may be too long for who has watched so far."""
    long = Call("call_longQ", "search", ('{"query": "' + "x" * 4000 + '"}',))
    body = stream_of(kit, saying("Let me look.", *equal(2), *equal(1, "call_f"), long))
    for cut in some(range(200, len(body), 97), 3, limit // 500):
        reply_ = Reply((body[:cut], body[cut:]))
        if kit.name == "bedrock-converse":
            reply_ = Reply(reply_.chunks, headers=((b"content-type", b"application/vnd.amazon.eventstream"),))
        met = meet(ask(kit, FRESH, stream=True), [reply_], max_response_bytes=limit)
        if "max_response_bytes" in str(met.log):
            assert met.body == body, cut
