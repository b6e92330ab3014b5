"""The circuit breaker, by a clock of the test's own."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from callfuse.stores.breaker import FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker
from tests.support.examples import more_examples


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pauses(breaker: Breaker, clock: Clock, count: int) -> list[float]:
    """The lengths of so many pauses."""
    found = []
    for _ in range(count):
        began = clock.now
        while not breaker.is_due():
            clock.now += 0.5
        found.append(clock.now - began)
    return found


def test_it_opens_once() -> None:
    """Failures of those that had asked before are no news."""
    breaker = Breaker(Clock())
    assert breaker.closed
    assert [breaker.record_failure() for _ in range(3)] == [True, False, False]
    assert not breaker.closed


def test_a_closed_one_needs_no_probe() -> None:
    """However long it has been closed."""
    clock = Clock()
    breaker = Breaker(clock)
    clock.now += 1000
    assert not breaker.is_due()


def test_one_probe_at_the_end_of_each_pause() -> None:
    """Each pause is twice as long as the one before, up to a limit."""
    clock = Clock()
    breaker = Breaker(clock)
    breaker.record_failure()
    assert pauses(breaker, clock, 8) == [1, 2, 4, 8, 16, 30, 30, 30]
    assert not breaker.is_due()


def test_one_that_opens_again_at_once_waits_longer() -> None:
    """As if the probe had failed, and more; one that has been closed for long begins anew."""
    clock = Clock()
    breaker = Breaker(clock)
    breaker.record_failure()
    assert pauses(breaker, clock, 3) == [1, 2, 4]
    breaker.close()
    assert breaker.closed
    assert breaker.record_failure()
    assert pauses(breaker, clock, 1) == [16]
    breaker.close()
    clock.now += LONGEST_PAUSE_S
    assert breaker.record_failure()
    assert pauses(breaker, clock, 1) == [FIRST_PAUSE_S]


@more_examples(5)
@given(steps=st.lists(st.sampled_from(["failed", "due", "close", "wait"]), max_size=60))
def test_probes_are_rare(steps: list[str]) -> None:
    """Whatever happens, two probes are at least the shortest pause apart, and none is made of a closed circuit."""
    clock = Clock()
    breaker = Breaker(clock)
    probed: list[float] = []
    for step in steps:
        if step == "failed":
            assert breaker.record_failure() or not breaker.closed
        elif step == "due":
            was_closed = breaker.closed
            if breaker.is_due():
                assert not was_closed
                probed.append(clock.now)
        elif step == "close":
            breaker.close()
        else:
            clock.now += 0.4
    assert all(later - earlier >= FIRST_PAUSE_S for earlier, later in pairwise(probed))
