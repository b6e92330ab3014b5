"""Remember a lane's blocks across user messages.

Some harnesses answer a block at once with a user message of their own, which starts a new timeline. So the memory
outlives that message: after a user message a blocked call may run once, and from the third block of the lane on only
after a new call has been executed.

A text that was cut off and blocked also counts as a block, although no call was blocked: the harness continues in the
same way.

A call is new if it is neither in the window of its timeline nor among those that were known at the lane's last blocks.
Blocks without a new executed call between them are a row. A user message counts as typed by a person, unless a block of
the row came after a message with the same text: a harness repeats its messages, with other numbers and times.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from callfuse.conversations.ledger import NO_BLOCKS, BlockMemory, KeptRound, LaneState, SessionState
from callfuse.model import Delivery, EarlierBlocks, PastCall, Timeline
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature

MUST_WAIT_FROM: Final = 3
"""From this block of a lane on, a user message alone does not allow a blocked call to run."""
MAX_CALLS: Final = 16
"""The most blocked calls that are kept; the oldest are dropped."""
MAX_TURNS: Final = 16
"""The most texts of user messages that are kept (as digests); the oldest are dropped."""
MAX_KNOWN: Final = 128
"""The most signatures of known calls that are kept; the oldest are dropped."""


def remember(memory: BlockMemory, rounds: Iterable[KeptRound]) -> BlockMemory:
    """Return the memory with the blocked calls of rounds before a new user message."""
    blocked = {call.signature: call for round_ in rounds for call in round_.calls if call.delivery is Delivery.BLOCKED}
    if not blocked:
        return memory
    before = {call.signature: call for call in memory.calls if call.signature not in blocked}
    known = [one if one.outcome else one._replace(outcome=_brought(memory, one.signature)) for one in blocked.values()]
    return replace(memory, calls=(*before.values(), *known)[-MAX_CALLS:])


def after_round(
    memory: BlockMemory, round_: KeptRound, window: Collection[Signature], turns: Iterable[bytes], now: float
) -> BlockMemory:
    """Return the memory after a round of the model. `window`: the signatures of the window before it, newest first,
    needed if a call of the round was blocked. `turns`: digests of the last user message's text. `now`: seconds."""
    if not (round_.blocked or memory.in_a_row):
        return memory
    known = {*memory.known, *window}
    if any(call.signature not in known for call in round_.delivered if call.name):
        return replace(memory, count=memory.count + round_.blocked, in_a_row=0, turns=(), known=(), time=now)
    if not round_.blocked:
        return memory
    return _after_block(memory, [*[*window][::-1], *(call.signature for call in round_.calls)], turns, now)


def after_answer(
    memory: BlockMemory,
    rounds: Sequence[KeptRound],
    window: Collection[Signature],
    turns: Sequence[bytes],
    now: float,
    *,
    is_text_blocked: bool,
) -> BlockMemory:
    """Return the memory after the rounds of an exchange. `is_text_blocked`: its answer ends in a block because its text
    was cut off, which counts as a block if no call was blocked. The other arguments are those of `after_round`."""
    for one in rounds:
        memory = after_round(memory, one, window if one.blocked else (), turns, now)
    if is_text_blocked and not any(one.blocked for one in rounds):
        memory = _after_block(memory, [*window][::-1], turns, now)
    return replace(memory, said=turns[-1]) if turns else memory


def _after_block(memory: BlockMemory, known: Iterable[Signature], turns: Iterable[bytes], now: float) -> BlockMemory:
    said, signatures = dict.fromkeys(turns), dict.fromkeys([*memory.known, *known])
    return replace(
        memory,
        count=memory.count + 1,
        in_a_row=memory.in_a_row + 1,
        turns=(*[one for one in memory.turns if one not in said], *said)[-MAX_TURNS:],
        known=tuple(signatures)[-MAX_KNOWN:],
        time=now,
    )


def with_last_outcomes(round_: KeptRound, timeline: Timeline, memory: BlockMemory) -> KeptRound:
    """Return the round; each blocked call gets the outcome of its last execution, in this timeline or before it."""
    calls = [
        call._replace(outcome=_last_outcome(timeline, call.signature) or _brought(memory, call.signature))
        if call.delivery is Delivery.BLOCKED
        else call
        for call in round_.calls
    ]
    return replace(round_, calls=tuple(calls))


def earlier_blocks(memory: BlockMemory) -> EarlierBlocks | None:
    """Return the blocks before the last user message, for the detectors; None if there were none."""
    if not memory.calls:
        return None
    calls = {
        call.signature: PastCall(call.call(), outcome=call.outcome, delivery=Delivery.DROPPED) for call in memory.calls
    }
    return EarlierBlocks(calls, must_wait=memory.count >= MUST_WAIT_FROM and memory.in_a_row > 0)


def after_reset(state: LaneState, session: SessionState) -> LaneState:
    """Return the state of a lane without the blocks that a command or an operator has ended for its session."""
    if session.released:
        state = replace(state, released=session.released)
    if session.reset and state.blocks.time <= session.reset and state.blocks is not NO_BLOCKS:
        return replace(state, blocks=NO_BLOCKS)
    return state


def is_typed_since(memory: BlockMemory, turns: Collection[bytes]) -> bool:
    """Whether a person has probably typed something since the last block. `turns`: as in `after_round`."""
    return not memory.in_a_row or set(memory.turns).isdisjoint(turns)


def _brought(memory: BlockMemory, signature: Signature) -> Outcome | None:
    return next((call.outcome for call in memory.calls if call.signature == signature), None)


def _last_outcome(timeline: Timeline, signature: Signature) -> Outcome | None:
    found = (round_.find(signature) for round_ in timeline)
    return next((one.outcome for one in found if one and not one.withheld and one.outcome), None)
