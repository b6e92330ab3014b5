"""Caps on the wire: what warns at most lets calls go and tells of them; what is lifted acts on calls that go on."""

from typing import Any

import pytest

from tests.laws.test_in_hindsight import LIMIT, failing, next_call
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, ask, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.plain import PIECES, saying

two_dialects = pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in ("openai-chat", "anthropic")], ids=lambda kit: kit.name
)
WORDS = ("ant", "bee", "cow", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kea", "lark", "mole", "newt", "owl")


def repeated(rounds: int, *, changing: bool = True) -> History:
    """The same call again and again, with other results each time or the same."""
    made = [
        Round((Call(f"call_{at}", "search", PIECES),), (f"It is a {WORDS[at] if changing else WORDS[0]}.",))
        for at in range(rounds)
    ]
    return History((User("Find the zebra crossing."), *made))


def answered(kit: DialectKit, history: History, *calls: Call, stream: bool = True, **settings: Any) -> Meeting:
    """The model makes these calls, one an answer."""
    replies = [reply(kit, saying(call, tag=f"r{at}"), stream=stream) for at, call in enumerate(calls)]
    return meet(ask(kit, history, stream=stream), replies, "chance_then_block", **settings)


def warned(kit: DialectKit, met: Meeting) -> list[bool]:
    """Which results of the request that the model got carry a warning."""
    return [MARK in text for _, text in kit.results(met.app.heard[0].body)]


@two_dialects
@streamed_and_whole
def test_a_call_with_changing_results_is_warned_of(kit: DialectKit, stream: bool) -> None:
    """The call goes out byte for byte, however often it comes, and its result tells the model. Where nobody watches,
    the ladder begins from the hard limit on."""
    again, other = Call("call_again", "search", PIECES), Call("call_other", "read", ('{"path": "a"}',))
    met = answered(kit, repeated(8), again, stream=stream)
    assert len(met.app.heard) == 1
    assert b"call_again" in met.body or kit.sdk(met.body, stream=stream)[0].calls
    assert warned(kit, met) == [False] * 5 + [True] * 3
    assert len(answered(kit, repeated(14), again, stream=stream).app.heard) == 1
    unattended = {"models": {"*": {"mode": "unattended"}}}
    assert len(answered(kit, repeated(8), again, stream=stream, **unattended).app.heard) == 1
    hard = answered(kit, repeated(9), again, other, stream=stream, **unattended)
    assert len(hard.app.heard) == 2
    assert [call.name for call in kit.sdk(hard.body, stream=stream)[0].calls] == ["read"]


@two_dialects
@streamed_and_whole
def test_what_waits_is_warned_of_below_the_hard_limit(kit: DialectKit, stream: bool) -> None:
    """A poller has five times the limits, and then a warning."""
    again = Call("call_again", "search", PIECES)
    waits = {"per_tool": {"search": {"poller": True}}}
    met = answered(kit, repeated(15, changing=False), again, stream=stream, **waits)
    assert len(met.app.heard) == 1
    assert [call.name for call in kit.sdk(met.body, stream=stream)[0].calls] == ["search"]
    assert warned(kit, met) == [False] * 14 + [True]


LIFTED: list[dict[str, Any]] = [
    {"detectors": {"same_error": {"most": "none"}}},
    {"models": {"*": {"mode": "unattended"}}},
    {"per_tool": {"lookup": {"detectors": {"same_error": {"most": "steer"}}}}},
]


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize("lifted", LIFTED)
def test_a_lifted_cap_acts_on_the_call_that_goes_on(kit: DialectKit, stream: bool, lifted: dict[str, Any]) -> None:
    """The model is asked again; other arguments then go through. Under the default the call goes out."""
    calls = next_call(LIMIT), next_call(LIMIT + 1)
    met = answered(kit, failing(LIMIT), *calls, stream=stream, **lifted)
    assert len(met.app.heard) == 2
    (survivor,) = kit.sdk(met.body, stream=stream)[0].calls
    assert f"t_{LIMIT + 1}" in str(survivor)
    assert len(answered(kit, failing(LIMIT), *calls, stream=stream).app.heard) == 1
    assert len(answered(kit, failing(LIMIT - 1), *calls, stream=stream, **lifted).app.heard) == 1


@two_dialects
@streamed_and_whole
def test_the_same_call_after_the_guidance_is_blocked(kit: DialectKit, stream: bool) -> None:
    """It takes the next rung, like any other finding."""
    calls = next_call(LIMIT), next_call(LIMIT)
    met = answered(kit, failing(LIMIT), *calls, stream=stream, models={"*": {"mode": "unattended"}})
    (answer,) = kit.sdk(met.body, stream=stream)
    assert answer.calls == ()
    assert MARK in str(answer)


@two_dialects
def test_observing_changes_nothing(kit: DialectKit) -> None:
    """The preset for watching only: not a byte of request or answer is another."""
    answer = reply(kit, saying(next_call(LIMIT)), stream=True)
    request = ask(kit, failing(LIMIT), stream=True)
    lifted = {"detectors": {"same_error": {"most": "none"}}}
    met = meet(request, [answer], "observe", **lifted)
    assert (met.app.heard[0].body, met.body) == (request.body, answer.body)
