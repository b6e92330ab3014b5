"""Remember the calls that a limit has cut off in a lane's answers, to recognise the same calls in later answers.

The ledger keeps that the arguments of a call had no end, and how they began. A history may not show this: its arguments
may be values, and a client may complete the arguments in any way.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from callfuse.conversations.ledger import CutOff, LaneState, is_same_id
from callfuse.detect.truncated import cut_off_key
from callfuse.model import Round, ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.timeline import CutOffKey

MOST: Final = 64
"""How many calls a lane keeps, the newest ones; also from before the last user message, for their results' texts."""
LONGEST_NOTE: Final = 2048
"""The most characters of the text that is kept for a call; a longer text is left out."""


Place = tuple[int, bytes, float]
"""Position, turn and time of an answer, as in `KeptRound`."""


def going_on(state: LaneState, place: Place, ttl_s: float) -> Mapping[CutOffKey, int]:
    """Return, for each call that was cut off just before this place, in how many consecutive answers it was cut off."""
    known, (position, turn, now) = state.cut_off, place
    newest = known[-1] if known else None
    if newest is None or newest.turn != turn or now - newest.time > ttl_s or 0 < newest.time <= state.released:
        return {}
    of_newest = [one for one in known if one.position == newest.position and one.turn == turn]
    counts = {(one.tool, one.begin): one.answers - (one.position == position) for one in of_newest}
    return {key: count for key, count in counts.items() if count > 0}


def with_answer(
    known: Sequence[CutOff],
    calls: Sequence[tuple[ToolCall, str]],
    before: Mapping[CutOffKey, int],
    place: Place,
    *,
    is_round: bool,
) -> tuple[CutOff, ...]:
    """Return the calls to keep after an answer. `calls`: those that were cut off in it, each with the text for its
    result. `before`: the counts of `going_on`. `is_round`: the answer has calls; if none is cut off, the row ends."""
    if not (calls or is_round):
        return tuple(known)
    position, turn, now = place
    earlier = [one if one.turn != turn else one._replace(answers=0) for one in known if one.position != position]
    new = {}
    for call, note in calls:
        tool, begin = key = cut_off_key(call)
        text = note if len(note) <= LONGEST_NOTE else ""
        new[key] = CutOff(position, turn, now, bounded_id(call.id), tool, begin, before.get(key, 0) + 1, text)
    return (*earlier, *new.values())[-MOST:]


def carriers(known: Sequence[CutOff], timelines: Sequence[Sequence[Round]]) -> Iterator[tuple[int, ToolCall, str]]:
    """Yield the calls of a history whose results carry the text for a call that was cut off, with position and text."""
    noted = {one.position: one for one in known if one.note}
    for round_ in (round_ for rounds in timelines for round_ in rounds) if noted else ():
        if (one := noted.get(round_.position)) is None:
            continue
        for past in round_.calls:
            if bounded_id(past.full_name) == one.tool and is_same_id(bounded_id(past.id), one.id):
                yield round_.position, past.call, one.note
                break
