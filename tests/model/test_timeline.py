"""Windows of a timeline."""

from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import MIN_WINDOW_CALLS, Round, Timeline
from tests.detect.drawn import timelines
from tests.support.examples import more_examples


@more_examples(5)
@given(past=timelines(), times=st.integers(1, 3), size=st.integers(1, 14), before=st.integers(0, 5))
def test_a_window_reaches_back_until_it_is_full(past: Timeline, times: int, size: int, before: int) -> None:
    """It has so many rounds, and ten calls, that reached the client, and not one round more."""

    def is_full(window: list[Round]) -> bool:
        executed = [one.executed for one in window if one.executed]
        return len(executed) >= size and sum(executed) >= MIN_WINDOW_CALLS

    rounds = [*past.rounds] * times
    window = [*Timeline(rounds).rounds_of_window(size, before=before)]
    assert window == rounds[before : before + len(window)]
    assert is_full(window) or before + len(window) >= len(rounds)
    assert len(window) <= size or not is_full(window[:-1])
