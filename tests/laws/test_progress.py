"""What a result says decides on the wire: numbers that move are progress, times that move are none."""

import pytest

from callfuse.model.outcomes import outcome_of
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

two_dialects = pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in ("openai-chat", "anthropic")], ids=lambda kit: kit.name
)


def brought(*results: str, arguments: str = '{"id": 17}', tool: str = "step") -> History:
    """One call that brought each of these."""
    rounds = [Round((Call(f"call_{at}", tool, (arguments,)),), (text,)) for at, text in enumerate(results)]
    return History((User("Find the zebra crossing."), *rounds), tools=("step", "bash"))


def is_stopped(kit: DialectKit, history: History, call: Call, *, stream: bool = True, **settings: object) -> bool:
    """Whether a call is withheld after a conversation, under the ladder `block`; else its answer is untouched."""
    answer = reply(kit, saying(call), stream=stream)
    met = meet(ask(kit, history, stream=stream), [answer], "block", **settings)
    (view,) = kit.read(met.body, stream=stream)
    assert met.body == answer.body or view.calls == ()
    return met.body != answer.body


NEXT = Call("call_next", "step", ('{"id": 17}',))


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("You are at (4,2)", "You are at (4,3)"),
        ("Row 3 selected", "Row 4 selected"),
        ('{"rolled": 5}', '{"rolled": 2}'),
        ("progress 40 %", "progress 55 %"),
        ("jobs: 17, 18", "jobs: 18, 19"),
    ],
)
def test_a_number_that_moves_is_progress(kit: DialectKit, stream: bool, one: str, other: str) -> None:
    """The third equal call goes through; with equal results it does not."""
    assert not is_stopped(kit, brought(one, other), NEXT, stream=stream)
    assert is_stopped(kit, brought(one, one), NEXT, stream=stream)


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 passed in 0.04s", "3 passed in 1.52s"),
        ('{"at": "2026-11-23T10:00:05Z", "request_id": "ab-1"}', '{"at": "2026-11-24T00:00:00Z", "request_id": "x-2"}'),
        ("pid=17 elapsed=3 done", "pid=4711 elapsed=5 done"),
        ("Error: row 3 is locked", "Error: row 4 is locked"),
    ],
)
def test_a_time_that_moves_is_none(kit: DialectKit, stream: bool, one: str, other: str) -> None:
    """Nor are ids of processes and requests, and numbers in errors."""
    assert outcome_of(one) != outcome_of(other)
    assert is_stopped(kit, brought(one, other), NEXT, stream=stream)
