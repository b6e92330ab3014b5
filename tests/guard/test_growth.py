"""The work of a guard grows with what comes, whatever an answer is made of: shown by counting lines, not by a clock.

In: answers of many choices or many calls, of one size and of twice that. Out: the lines of Python that the guard runs.
"""

import pytest

from callfuse.dialects.base import OpenCall
from callfuse.guard.hold import Input
from callfuse.guard.observer import Observer
from callfuse.guard.queue import HoldQueue
from callfuse.wire import EVENTS
from tests.guard.driving import Outcome, play, scene
from tests.guard.written import DONE, OPENAI, chunk, part
from tests.support.plain import spin
from tests.support.work import lines_run

GROWTH = 2.5
"""What twice the size may cost: 2, and what does not grow is the less the larger."""


def releases(count: int, *, in_turn: bool = False) -> None:
    """As many choices as held calls, their frames by turns; each is released by itself, the last one first."""
    queue = HoldQueue(ordered=False, in_turn=in_turn)
    calls = [OpenCall(choice, 0, name="search") for choice in range(count)]
    for call in calls:
        queue.open_call(call, suspect=True)
    for _ in range(20):
        for choice in range(count):
            queue.put(b"%d." % choice, (choice,))
    for choice in reversed(range(count)):
        queue.step(choice, Input.INNOCENT)
    assert len(queue.drain()) > 20 * count
    assert not queue.is_waiting


def test_a_release_looks_at_what_it_sends() -> None:
    """Not at all that waits, nor at all calls that are held."""
    assert lines_run(lambda: releases(400)) < GROWTH * lines_run(lambda: releases(200))


def answer(*deltas: bytes) -> list[bytes]:
    """The chunks of an answer that has an end."""
    return [*deltas, DONE]


def looping_choices(count: int) -> list[bytes]:
    """As many choices, each with the call that loops."""
    begun = [chunk({"role": "assistant", "tool_calls": [part(f"call_{at}")]}, choice=at) for at in range(count)]
    return answer(*begun, *(chunk({}, "tool_calls", choice=at) for at in range(count)))


def calls_by_turns(count: int) -> list[bytes]:
    """One choice with as many looping calls, then as many new ones, each of which would free them."""
    parts = [part(f"call_{at}", index=at) for at in range(count)]
    parts += [part(f"new_{at}", f'{{"query": "{at}"}}', index=count + at) for at in range(count)]
    return answer(*(chunk({"tool_calls": [one]}) for one in parts), chunk({}, "tool_calls"))


def guarded(chunks: list[bytes], ladder: str = "block") -> Outcome:
    """What comes of an answer."""
    return play(scene(OPENAI, spin(), ladder=ladder, n=2).guard(), chunks)


@pytest.mark.parametrize("make", [looping_choices, calls_by_turns])
@pytest.mark.parametrize("joined", [False, True], ids=["framewise", "in one chunk"])
def test_an_answer_costs_what_it_brings(make: object, joined: bool) -> None:
    """Choices and calls, however many: each is judged, withheld or released once."""
    assert callable(make)
    small, large = make(60), make(120)
    if joined:
        small, large = [b"".join(small)], [b"".join(large)]
    guarded(small)
    assert lines_run(lambda: guarded(large)) < GROWTH * lines_run(lambda: guarded(small))


def observed(chunks: list[bytes]) -> None:
    """The record of an answer that only passes."""
    made = scene(OPENAI, ladder="warn")
    observer = Observer(made.dialect, 1, made.judge.settings, None, EVENTS)
    for one in chunks:
        observer.feed(one)
    assert len(observer.settle().rounds) == len(chunks) // 2


def test_the_calls_of_many_choices_are_recorded_in_one_pass() -> None:
    """Not once for each choice."""
    small, large = looping_choices(100), looping_choices(200)
    observed(small)
    assert lines_run(lambda: observed(large)) < GROWTH * lines_run(lambda: observed(small))
