"""The steer loop of an exchange: one rung for a round that loses all, always higher, and made anew for each answer."""

import json

import pytest

from callfuse.guard.record import ExchangeRecord
from callfuse.guard.steer_loop import SteerLoop, all_ask
from callfuse.model import Finding
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import Rung
from tests.detect.timelines import call
from tests.guard.driving import each_kit, play, scene
from tests.guard.written import OPENAI
from tests.support.config import OTHER_MODEL
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import streamed_and_whole
from tests.support.model import Answer
from tests.support.plain import again, elsewhere, same_call, saying, thinking
from tests.support.wire import frames

OBSERVE, WARN, STEER, FORCE_TEXT, ESCALATE, BLOCK = Rung


def verdicts(*rungs: tuple[Rung | None, int]) -> list[Verdict]:
    """Verdicts over calls `a`, `b`, ... at these rungs and places."""
    found = []
    for letter, (rung, place) in zip("abc", rungs, strict=False):
        made = call(letter)
        finding = Finding("repeat", letter, made.signature, 3, 3, 300, hard=False)
        found.append(Verdict(made, finding, rung, place))
    return found


def steer_loop() -> SteerLoop:
    """The steer loop of an exchange that is asked about a loop, on a long ladder."""
    made = scene(OPENAI, ladder=["steer", "force_text", "escalate", "block"])
    return SteerLoop(made.dialect, made.request, made.judge, ExchangeRecord())


@pytest.mark.parametrize(
    ("given", "rungs"),
    [
        ([(STEER, 1), (STEER, 1)], [STEER, STEER]),
        ([(STEER, 1), (FORCE_TEXT, 2)], [FORCE_TEXT, FORCE_TEXT]),
        ([(ESCALATE, 1), (FORCE_TEXT, 3)], [ESCALATE, ESCALATE]),
        ([(STEER, 1), (BLOCK, 1), (ESCALATE, 2)], [BLOCK, BLOCK, BLOCK]),
        ([(WARN, 1), (STEER, 1), (None, 1)], [WARN, STEER, None]),
    ],
)
def test_a_round_is_lost_as_a_whole(given: list[tuple[Rung | None, int]], rungs: list[Rung | None]) -> None:
    """The hardest rung holds for all that is withheld; whether a model is asked is one thing for the whole of it."""
    made = steer_loop().apply_hardest_rung(verdicts(*given))
    assert [verdict.rung for verdict in made] == rungs
    assert [verdict.step for verdict in made] == [place for _, place in given]
    assert all_ask(made) is all(rung in (STEER, FORCE_TEXT, ESCALATE) for rung in rungs)


@pytest.mark.parametrize(
    ("before", "after", "rung"),
    [
        ((STEER, 1), (STEER, 2), STEER),
        ((STEER, 1), (ESCALATE, 1), ESCALATE),
        ((STEER, 1), (STEER, 1), BLOCK),
        ((ESCALATE, 2), (STEER, 2), BLOCK),
        ((ESCALATE, 2), (STEER, 3), STEER),
        ((FORCE_TEXT, 3), (ESCALATE, 2), BLOCK),
    ],
)
def test_each_time_it_asks_higher_up(before: tuple[Rung, int], after: tuple[Rung, int], rung: Rung) -> None:
    """By place, or at the same place by a harder rung: so that an exchange comes to an end."""
    made = steer_loop()
    (first,) = made.apply_hardest_rung(verdicts(before))
    assert first.rung is before[0]
    assert made.ask([first], lambda: b'{"role":"assistant","tool_calls":[]}') is not None
    (second,) = made.apply_hardest_rung(verdicts(after))
    assert second.rung is rung


def pieces(kit: DialectKit, tag: str, *, stream: bool) -> list[bytes]:
    """A thoughtful answer that makes the call again, in chunks."""
    answer = saying(thinking(), f"Try {tag}.", same_call(f"call_{tag}"), tag=tag)
    return chunks(kit, answer, stream=stream)


def chunks(kit: DialectKit, answer: Answer, *, stream: bool) -> list[bytes]:
    """An answer, a frame each."""
    return frames(stream_of(kit, answer)) if stream else [kit.whole(answer)]


@each_kit
@streamed_and_whole
def test_an_attempt_counts_once(kit: DialectKit, stream: bool) -> None:
    """An answer that breaks before any of it went out is none: the next one is judged, and counted on, as if it had
    never begun."""
    guard = scene(kit, ladder=["steer", "force_text", "block"], stream=stream).guard(stream=stream)
    cut = frames(stream_of(kit, again(text="", tag="second")))
    broken = cut[: max(at for at, one in enumerate(cut) if kit.called.encode() in one)] if stream else [b'{"id": "x", ']
    outcome = play(guard, pieces(kit, "first", stream=stream), broken, pieces(kit, "third", stream=stream))
    assert len(outcome.asked) == 2
    found = [(str(verdict.rung), verdict.finding.count) for verdict in guard.record.verdicts]
    assert found == [("steer", 3), ("force_text", 3), ("block", 4)]
    assert [len(round_) for round_ in guard.record.rounds] == [1, 1]
    assert not stream or kit.faults(outcome.out) == []
    assert b"call_second" not in outcome.out


@each_kit
@streamed_and_whole
def test_each_request_is_made_from_the_clients_own(kit: DialectKit, stream: bool) -> None:
    """What one rung changes does not outlast its answer, and every earlier attempt stands in it."""
    ladder = ["force_text", "escalate", "steer", "block"]
    made = scene(kit, ladder=ladder, stream=stream)
    guard = made.guard(stream=stream)
    tags = ("first", "second", "third")
    ending = chunks(kit, elsewhere(tag="fourth"), stream=stream)
    outcome = play(guard, *(pieces(kit, tag, stream=stream) for tag in tags), ending)
    asked = [json.loads(body) for body in outcome.asked]
    assert [body["model"] for body in asked] == [made.request.model, OTHER_MODEL, made.request.model]
    assert ["tool_choice" in body for body in asked] == [True, False, False]
    assert [[tag in json.dumps(body) for tag in ("call_first", "call_second", "call_third")] for body in asked] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    reasons = [json.dumps(body).count("The zebra again?") for body in asked]
    assert reasons == [1, 0, 2], "the third answer was the other model's"
    assert outcome.complete
