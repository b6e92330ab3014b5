"""The tests' own instruments on the bare app: a law is only as good as what it is measured with."""

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.ollama import Ollama
from tests.support.asgi import Request, run
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.model import Answer, Call, History, Round, User, View, seen
from tests.support.oracle import loops, may_be_too_many, may_loop
from tests.support.rules import violations
from tests.support.scripted import Reply, play
from tests.support.streams import KNOWN, answers, chunkings, fresh, styles, tangled
from tests.support.wire import cut, frames, is_insertion, quiet

every_dialect = pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)


def expected(kit: DialectKit, answer: Answer, choice: int, *, stream: bool) -> View:
    """What a client has of an answer that nobody touched."""
    calls = tuple(seen(call) for call in answer.calls(choice))
    thinking = "".join(item.text for item in answer.choices[choice] if not isinstance(item, Call))
    said = answer.text(choice)
    finish = kit.called if calls else kit.stopped
    told = not (stream and calls and answer.quirks.no_finish)
    return View(said, thinking.removesuffix(said), calls, finish if told else None)


@every_dialect
@given(data=st.data())
def test_streams_are_read_as_they_were_meant(kit: DialectKit, data: st.DataObject) -> None:
    """Every rendered stream gives back its answer, and the SDK agrees wherever it can read the quirks."""
    answer = data.draw(answers(kit, data.draw(st.lists(st.sampled_from(KNOWN), max_size=3))))
    body = stream_of(kit, answer)
    wanted = tuple(expected(kit, answer, choice, stream=True) for choice in range(len(answer.choices)))
    assert kit.read(body, stream=True) == wanted
    assert kit.faults(body) == []
    if answer.quirks.sdk_reads:
        assert kit.sdk(body, stream=True) == wanted


@every_dialect
@given(data=st.data())
def test_whole_answers_are_read_as_they_were_meant(kit: DialectKit, data: st.DataObject) -> None:
    """The same for whole answers."""
    answer = data.draw(answers(kit, data.draw(st.lists(st.sampled_from(KNOWN), max_size=3))))
    wanted = tuple(expected(kit, answer, choice, stream=False) for choice in range(len(answer.choices)))
    assert kit.read(kit.whole(answer), stream=False) == kit.sdk(kit.whole(answer), stream=False) == wanted


@every_dialect
@given(data=st.data())
def test_histories_and_replays_are_accepted_by_the_vendor(kit: DialectKit, data: st.DataObject) -> None:
    """What the tests send breaks no rule by itself, nor does the next turn of an answer that nobody touched."""
    history, style = data.draw(tangled()), data.draw(styles())
    if not isinstance(history.turns[-1], User) or len(history.turns) == 1:
        assert violations(kit.name, json.loads(kit.request(history, stream=True, style=style))) == []
    answer = data.draw(answers(kit, [fresh(0), KNOWN[2]], many=False, plain=True))
    following = kit.replay(history, stream_of(kit, answer), stream=True, result="done")
    assert violations(kit.name, json.loads(following)) == []


@every_dialect
@given(data=st.data())
def test_the_driver_shows_in_which_turn_a_byte_left(kit: DialectKit, data: st.DataObject) -> None:
    """Of the bare app each chunk is seen in its own turn, and the whole is what was sent."""
    body = stream_of(kit, data.draw(answers(kit)))
    chunks = data.draw(chunkings(body))
    app = play(Reply(chunks))
    exchange = run(app, Request(kit.path, b"{}"), turn=lambda: app.turn)
    assert exchange.complete
    assert exchange.body == body
    assert exchange.lengths(len(chunks)) == list(accumulate(len(chunk) for chunk in chunks))
    assert exchange.body_by(0) == chunks[0]


@given(data=st.data())
def test_cutting_loses_nothing(data: st.DataObject) -> None:
    """Chunks and frames joined are the body; keep-alives are what `quiet` takes out."""
    kit = data.draw(st.sampled_from(KITS))
    answer = data.draw(answers(kit, [KNOWN[0]]))
    body = stream_of(kit, answer)
    assert b"".join(cut(body, data.draw(st.lists(st.integers(0, 500))))) == b"".join(frames(body)) == body
    assert quiet(body) == b"".join(frame.raw for frame in kit.frames(answer) if frame.kind != "noise")


def test_a_keep_alive_is_seen_behind_a_blank_line() -> None:
    """A stream of lines may begin with an empty one, and have one in it that is no JSON."""
    line, alive = b'{"message":{"content":"So"}}\n', Ollama.heartbeat
    assert quiet(b"\n" + line + b"data: null\n" + alive + line) == line + b"data: null\n" + line


@pytest.mark.parametrize(
    ("original", "changed", "holds"),
    [
        (b"abc", b"abXc", True),
        (b"abc", b"abc", False),
        (b"abc", b"aXbYc", False),
        (b"aaa", b"aaaa", True),
        (b"abc", b"ab", False),
    ],
)
def test_an_insertion_is_one_stretch(original: bytes, changed: bytes, *, holds: bool) -> None:
    """Only one stretch put in, with everything else in place, is an insertion."""
    assert is_insertion(original, changed) is holds


def conversation(*rounds: str, results: str = "") -> History:
    """`conversation("a", "ab")`: one letter a call, `results` one letter a round."""
    made = results or "r" * len(rounds)
    turns = [
        Round(tuple(called(letter) for letter in letters), (result,) * len(letters))
        for letters, result in zip(rounds, made, strict=True)
    ]
    return History((User("Go."), *turns))


def called(letter: str) -> Call:
    """A call that is known by its letter."""
    return Call(f"call_{letter}", "search", (f'{{"q":"{letter}"}}',))


SAID_AGAIN = (*((User("Again."), *conversation("a").turns[1:]) * 2), User("Again."))


@pytest.mark.parametrize(
    ("history", "pending", "found"),
    [
        (conversation("a", "a"), "a", "a"),
        (conversation("a"), "a", ""),
        (conversation("a", "a"), "b", ""),
        (conversation("a", "a", results="rs"), "a", ""),
        (conversation("a", "a", "a", results="srr"), "a", "a"),
        (conversation("a", "b", "a"), "a", ""),
        (conversation("a", "ab"), "a", ""),
        (conversation("ab", "a"), "a", "a"),
        (conversation("a", "a"), "ab", ""),
        (conversation("b", "a", "a"), "ab", "a"),
        (conversation("ab", "ab"), "ba", "ba"),
        (conversation("a", "a", "a", "a", "a", results="rsrsr"), "a", ""),
        (conversation("a", "a").and_then(User("Again.")), "a", ""),
        (conversation("a").and_then(*SAID_AGAIN[:3]), "a", ""),
        (conversation("a").and_then(*SAID_AGAIN), "a", "a"),
        (conversation("a").and_then(*SAID_AGAIN[:-1], User("Now that.")), "a", ""),
        (conversation("a").and_then(*SAID_AGAIN[:-1], User("Now that."), User("Again.")), "a", ""),
        (conversation("a", "a").and_then(*conversation("a").turns), "a", ""),
        (conversation(), "aa", ""),
        (conversation(), "aaaaa", ""),
        (conversation(), "aaaaaaa", "aa"),
        (conversation("b"), "aaaaaa", "a"),
        (conversation("a"), "aaaa", "aa"),
        (conversation("a"), "abaaba", "aa"),
        (conversation("a", "a"), "aaa", "aaa"),
        (conversation("a", "a"), "aaab", "a"),
    ],
)
def test_the_oracle_knows_simple_loops(history: History, pending: str, found: str) -> None:
    """Three rounds in a row with one outcome; a new call ends a streak, and so does a message of a user that is not
    said again. The third equal call of one answer, the sixth of a new one."""
    calls = [called(letter) for letter in pending]
    judged = loops(history, calls)
    assert [call.id for call in judged] == [f"call_{letter}" for letter in found]
    assert may_loop(history, "search") or set(judged) <= set(may_be_too_many(history, calls))


@pytest.mark.parametrize(
    ("history", "pending", "found"),
    [
        (conversation("z"), "aa", ""),
        (conversation("z"), "aab", "b"),
        (conversation("z"), "abcd", ""),
        (conversation("z"), "abacaa", "caa"),
        (conversation(), "abacaa", ""),
        (conversation(), "aaaaab", "b"),
    ],
)
def test_the_oracle_knows_what_may_be_too_many(history: History, pending: str, found: str) -> None:
    """The call behind two equal ones, whatever its arguments are; behind five, where its tool has not come before."""
    calls = [called(letter) for letter in pending]
    assert [call.id for call in may_be_too_many(history, calls)] == [f"call_{letter}" for letter in found]
