"""The hold's table: total, and true to its theory of operation."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.guard.hold import TRANSITIONS, Effect, Hold, Input, State, table
from tests.support.examples import more_examples

QUEUING = (State.HOLDING, State.CONDEMNED)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("input_", Input)
def test_every_state_takes_every_input(state: State, input_: Input) -> None:
    """The table is total, and only a state that queues has something to release or to judge."""
    effect, after = TRANSITIONS[state, input_]
    assert effect is Effect.NONE or state in QUEUING
    assert state.queues is (state in QUEUING)
    if state in QUEUING and after not in QUEUING:
        assert effect is not Effect.NONE


@more_examples(5)
@given(inputs=st.lists(st.sampled_from(list(Input)), max_size=30))
def test_what_waits_is_released_or_judged(inputs: list[Input]) -> None:
    """Whatever comes, leaving a hold has an effect, staying in one has none, and nothing leaves an end."""
    hold = Hold()
    states = [hold.state]
    effects = []
    for input_ in inputs:
        effects.append(hold.step(input_))
        states.append(hold.state)
    for (before, after), effect in zip(pairwise(states), effects, strict=True):
        assert (effect is not Effect.NONE) is (before.queues and not after.queues)
        assert before not in (State.OPEN, State.ENDED) or after is before


@more_examples(5)
@given(inputs=st.lists(st.sampled_from(list(Input)), max_size=30))
def test_a_verdict_needs_a_loop_and_a_proper_end(inputs: list[Input]) -> None:
    """Only a call found looping, in an answer that came to its end, is judged; a cut or a limit releases."""
    hold = Hold()
    for input_ in inputs:
        before = hold.state
        if hold.step(input_) is Effect.JUDGE:
            assert (before, input_) == (State.CONDEMNED, Input.END)


@pytest.mark.parametrize(
    ("inputs", "effect", "state"),
    [
        ("", Effect.NONE, State.PASSING),
        ("FREE NEWS END", Effect.NONE, State.ENDED),
        ("SUSPECT", Effect.NONE, State.HOLDING),
        ("SUSPECT INNOCENT", Effect.RELEASE, State.PASSING),
        ("SUSPECT DIFFERENT", Effect.RELEASE, State.PASSING),
        ("SUSPECT DIFFERENT INNOCENT END", Effect.NONE, State.ENDED),
        ("SUSPECT DIFFERENT SUSPECT LOOPING END", Effect.JUDGE, State.ENDED),
        ("SUSPECT LOOPING", Effect.NONE, State.CONDEMNED),
        ("SUSPECT LOOPING DIFFERENT END", Effect.JUDGE, State.ENDED),
        ("SUSPECT LOOPING SUSPECT INNOCENT", Effect.NONE, State.CONDEMNED),
        ("SUSPECT LOOPING NEWS", Effect.RELEASE, State.PASSING),
        ("SUSPECT LOOPING NEWS SUSPECT LOOPING END", Effect.JUDGE, State.ENDED),
        ("SUSPECT LOOPING END", Effect.JUDGE, State.ENDED),
        ("SUSPECT LOOPING CUT", Effect.RELEASE, State.ENDED),
        ("SUSPECT CUT", Effect.RELEASE, State.ENDED),
        ("SUSPECT END", Effect.RELEASE, State.ENDED),
        ("SUSPECT LIMIT SUSPECT LOOPING END", Effect.NONE, State.OPEN),
    ],
)
def test_ways_through_the_table(inputs: str, effect: Effect, state: State) -> None:
    """The last effect and the state in which each way ends."""
    hold = Hold()
    last = Effect.NONE
    for name in inputs.split():
        last = hold.step(Input[name])
    assert (last, hold.state) == (effect, state)


def test_each_state_and_effect_can_be_reached() -> None:
    """There is no dead row in the table."""
    reached, left = {State.PASSING}, [State.PASSING]
    effects: set[Effect] = set()
    while left:
        state = left.pop()
        for input_ in Input:
            effect, after = TRANSITIONS[state, input_]
            effects.add(effect)
            if after not in reached:
                reached.add(after)
                left.append(after)
    assert reached == set(State)
    assert effects == set(Effect)


def test_the_table_as_text_has_a_row_for_each_state() -> None:
    """And a cell for each input."""
    lines = table().splitlines()
    assert len(lines) == 2 + len(State)
    assert {line.count("|") for line in lines} == {2 + len(Input)}
    assert "judge, ENDED" in next(line for line in lines if line.startswith("| CONDEMNED"))
