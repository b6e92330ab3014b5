"""Recognise progress in the results of one call: a number changes in one direction, or the results grow.

The input is outcomes, newest first. Only the text that an outcome keeps is read: the first characters, without times
and ids. Progress later in a result is not seen.
"""

import re
from collections.abc import Sequence
from typing import Final

from callfuse.memo import remembered
from callfuse.model.outcomes import SHORT_TEXT, Outcome
from callfuse.model.outcomes.normalise import normalise

RESULTS: Final = 5
"""How many consecutive results show progress. So many random numbers are in order once in 30 times."""
STEPS: Final = 3
"""The number must have at least so many different values in these results."""
_NUMBER: Final = re.compile(rb"[0-9]+(?:\.[0-9]+)?")
_LONGEST_NUMBER: Final = 30


def since_progress(outcomes: Sequence[Outcome | None]) -> int:
    """Count the outcomes since the newest progress; all of them if there is none."""
    texts = [outcome.text if outcome else None for outcome in outcomes]
    if len({*texts}) == 1:  # as in most loops
        return len(texts)
    for at in range(len(texts) - 1):
        newer, older = texts[at], texts[at + 1]
        if newer is not None and older is not None and newer != older and _goes_on(older, newer):
            return at
        newest = tuple([text for text in texts[at : at + RESULTS] if text is not None])
        if len(newest) == RESULTS and newest[0] != newest[-1] and _moves(newest):
            return at
    return len(texts)


def _goes_on(older: str, newer: str) -> bool:
    """Whether the newer text continues the older with whole lines: it begins with all of it, or with its last lines."""
    older = older.rstrip("\n")
    begin = 0
    while begin < len(older):
        rest = older[begin:]
        if newer.startswith(rest) and newer[len(rest) :].startswith("\n") and newer[len(rest) :].strip():
            return True
        begin = older.find("\n", begin) + 1
        if not begin:
            return False
    return False


@remembered(entries=1024, longest=RESULTS * SHORT_TEXT)
def _moves(texts: tuple[str, ...]) -> bool:
    """Whether these texts differ only in numbers, and one number only rises or only falls. Memoized: equal texts are
    compared once for each round of a history."""
    words, newest = _numbers(texts[0])
    columns: list[list[float]] = [[number] for number in newest]
    for text in texts[1:]:
        own, numbers = _numbers(text)
        if own != words:
            return False
        for column, number in zip(columns, numbers, strict=True):
            column.append(number)
    return any(len(set(one)) >= STEPS and (one == sorted(one) or one == sorted(one, reverse=True)) for one in columns)


@remembered(entries=1024, longest=SHORT_TEXT)
def _numbers(text: str) -> tuple[bytes, tuple[float, ...]]:
    """Return a text with `0` for each number, and the numbers."""
    raw = normalise(text, keep_numbers=True)
    return _NUMBER.sub(b"0", raw), tuple([float(one[:_LONGEST_NUMBER]) for one in _NUMBER.findall(raw)])
