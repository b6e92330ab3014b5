"""Timelines written as words, so that a rule of detection reads as one line.

In: rounds, oldest first, each a text of calls: `a` is a call of tool `a`, `a1` the same tool with other arguments,
`a=x` brought the outcome `x` (without it the outcome is unknown), `!a` was withheld, `!!a` blocked.
"""

import re
from collections.abc import Sequence
from itertools import count

from callfuse.model import Result, Round, Timeline, ToolCall

_CALL = re.compile(r"(!{0,2})([a-z]*)(\d*)(?:=(\w*))?")


def call(word: str, call_id: str = "pending") -> ToolCall:
    """One call."""
    match = _CALL.fullmatch(word)
    assert match, word
    marks, tool, number, outcome = match.groups()
    result = None if outcome is None else Result(f"came back {outcome}")
    withheld, blocked = bool(marks), marks == "!!"
    arguments = f'{{"n":{number or 0}}}'
    return ToolCall(call_id, tool, arguments, result, withheld=withheld, blocked=blocked, place=int(withheld))


def calls(text: str) -> list[ToolCall]:
    """The calls of a pending round."""
    return [call(word, f"pending{at}") for at, word in enumerate(text.split())]


def rounds(*texts: str, times: Sequence[float | None] = ()) -> list[Round]:
    """Rounds, oldest first, with ids in order."""
    ids = count()
    known = [*times, *([None] * len(texts))]
    return [
        Round(tuple(call(word, f"id{next(ids)}") for word in text.split()), 1 + 2 * at, known[at])
        for at, text in enumerate(texts)
    ]


def timeline(*texts: str, times: Sequence[float | None] = (), now: float = 0.0) -> Timeline:
    """The timeline of these rounds."""
    made = rounds(*texts, times=times)
    has_blocks = any(one.blocked for round_ in made for one in round_.calls)
    return Timeline(reversed(made), now, has_blocks=has_blocks)
