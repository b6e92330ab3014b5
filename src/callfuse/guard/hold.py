"""The hold: which frames of a choice leave, which wait, and when a verdict is due.

Theory of operation. One state machine runs for each choice of an answer. A dialect's reader turns frames into inputs;
each input steps the machine and may release what waits. After the inputs of a frame, the frame leaves if the machine is
in PASSING, OPEN or ENDED, and joins the queue if it is in HOLDING or CONDEMNED.

PASSING: nothing waits. A call that cannot be a loop (FREE) streams through; one that could be (SUSPECT) starts a hold
with the frame that opens it. HOLDING: the suspect grows, and all frames after it queue. If it is found INNOCENT at its
end, and no other call in the queue is growing, the queue leaves. It leaves earlier, with the piece of arguments that
makes the suspect DIFFERENT from every call that it would have to equal (`prefixes.py`). CONDEMNED: a call has been
found looping. Only the end of the answer decides, because it shows whether a new call came, too: that is progress
(NEWS) and releases all. At the END, policy decides on the queue (JUDGE).
An answer that is CUT off, and any LIMIT or error before the verdict, release everything unchanged. In OPEN and ENDED,
everything passes. (A second answer, if none of it was sent, is not released but dropped: the guard goes to the next
rung.)
"""

from enum import Enum
from typing import Final


class State(Enum):
    """The states of a hold; each decides what happens to the next frame."""

    PASSING = "passing"
    HOLDING = "holding"
    CONDEMNED = "condemned"
    OPEN = "open"
    ENDED = "ended"

    @property
    def queues(self) -> bool:
        """Whether frames wait in this state."""
        return self in (State.HOLDING, State.CONDEMNED)


class Input(Enum):
    """The inputs of a hold, from a frame or from the end of frames."""

    FREE = "a call opens that cannot be a loop"
    SUSPECT = "a call opens that could be a loop"
    INNOCENT = "the suspect call is complete and is not a loop"
    DIFFERENT = "the suspect call continues, but can no longer be a loop"
    LOOPING = "the suspect call is complete and is a loop"
    NEWS = "a new call came in this round"
    END = "the answer is complete"
    CUT = "the answer broke off"
    LIMIT = "a limit was reached, or an error occurred"


class Effect(Enum):
    """What to do with the queue after a transition."""

    NONE = "-"
    RELEASE = "release"
    JUDGE = "judge"


TRANSITIONS: Final[dict[tuple[State, Input], tuple[Effect, State]]] = {
    (State.PASSING, Input.FREE): (Effect.NONE, State.PASSING),
    (State.PASSING, Input.SUSPECT): (Effect.NONE, State.HOLDING),
    (State.PASSING, Input.INNOCENT): (Effect.NONE, State.PASSING),
    (State.PASSING, Input.DIFFERENT): (Effect.NONE, State.PASSING),
    (State.PASSING, Input.LOOPING): (Effect.NONE, State.PASSING),
    (State.PASSING, Input.NEWS): (Effect.NONE, State.PASSING),
    (State.PASSING, Input.END): (Effect.NONE, State.ENDED),
    (State.PASSING, Input.CUT): (Effect.NONE, State.ENDED),
    (State.PASSING, Input.LIMIT): (Effect.NONE, State.OPEN),
    (State.HOLDING, Input.FREE): (Effect.NONE, State.HOLDING),
    (State.HOLDING, Input.SUSPECT): (Effect.NONE, State.HOLDING),
    (State.HOLDING, Input.INNOCENT): (Effect.RELEASE, State.PASSING),
    (State.HOLDING, Input.DIFFERENT): (Effect.RELEASE, State.PASSING),
    (State.HOLDING, Input.LOOPING): (Effect.NONE, State.CONDEMNED),
    (State.HOLDING, Input.NEWS): (Effect.NONE, State.HOLDING),
    (State.HOLDING, Input.END): (Effect.RELEASE, State.ENDED),
    (State.HOLDING, Input.CUT): (Effect.RELEASE, State.ENDED),
    (State.HOLDING, Input.LIMIT): (Effect.RELEASE, State.OPEN),
    (State.CONDEMNED, Input.FREE): (Effect.NONE, State.CONDEMNED),
    (State.CONDEMNED, Input.SUSPECT): (Effect.NONE, State.CONDEMNED),
    (State.CONDEMNED, Input.INNOCENT): (Effect.NONE, State.CONDEMNED),
    (State.CONDEMNED, Input.DIFFERENT): (Effect.NONE, State.CONDEMNED),
    (State.CONDEMNED, Input.LOOPING): (Effect.NONE, State.CONDEMNED),
    (State.CONDEMNED, Input.NEWS): (Effect.RELEASE, State.PASSING),
    (State.CONDEMNED, Input.END): (Effect.JUDGE, State.ENDED),
    (State.CONDEMNED, Input.CUT): (Effect.RELEASE, State.ENDED),
    (State.CONDEMNED, Input.LIMIT): (Effect.RELEASE, State.OPEN),
    **{(State.OPEN, input_): (Effect.NONE, State.OPEN) for input_ in Input},
    **{(State.ENDED, input_): (Effect.NONE, State.ENDED) for input_ in Input},
}


class Hold:
    """The state machine of one choice."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = State.PASSING

    def step(self, input_: Input) -> Effect:
        """Make a transition; return what to do with the queue."""
        effect, self.state = TRANSITIONS[self.state, input_]
        return effect


def table() -> str:
    """Return the transitions as a Markdown table, one row per state and one column per input."""
    rows = ["| state | " + " | ".join(input_.name for input_ in Input) + " |", "|---" * (len(Input) + 1) + "|"]
    for state in State:
        cells = []
        for input_ in Input:
            effect, after = TRANSITIONS[state, input_]
            move = "." if after is state else after.name
            cells.append(move if effect is Effect.NONE else f"{effect.value}, {move}")
        rows.append(f"| {state.name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
