"""When calls of a caller have run, by a clock of the test's own."""

from callfuse.mcp.run_times import CALLS_KEPT, RunTimes


class Clock:
    """A clock that stands where it is set."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_runs_are_counted_over_the_last_posts() -> None:
    """A POST counts a call once that runs in it and is to count; one of another time counts no more."""
    times = RunTimes(Clock())
    for counts in (True, True, False, True):
        assert not times.begin(60.0)
        times.note(b"a", counts=counts)
    assert [times.count(b"a", last) for last in (0, 1, 2, 9)] == [1, 1, 2, 3]
    assert times.count(b"b", 9) == 0


def test_all_begins_anew_where_nothing_has_run_for_long() -> None:
    """What ran before counts no more, but is known to have run."""
    clock = Clock()
    times = RunTimes(clock)
    times.begin(60.0)
    times.note(b"a", counts=True)
    clock.now += 61.0
    assert times.begin(60.0)
    assert (times.count(b"a", 9), times.age(b"a"), times.age(b"b")) == (0, 61.0, 0.0)
    times.note(b"a", counts=True)
    assert not times.begin(60.0)
    assert (times.count(b"a", 9), times.age(b"a")) == (1, 0.0)


def test_the_calls_that_ran_longest_ago_are_forgotten() -> None:
    """So many calls are kept, the last ones."""
    times = RunTimes(Clock())
    for at in range(CALLS_KEPT + 1):
        times.note(b"%d" % at, counts=True)
    assert (len(times), times.count(b"0", 1), times.count(b"1", 1)) == (CALLS_KEPT, 0, 1)
