"""Find a text that repeats itself while it grows: arguments, text or reasoning of one answer.

The input is the pieces of a text, cut anywhere; the output is at most one `Runaway`. A text is checked after each
`LOOK` characters, not at the ends of its pieces, so the cut does not matter. Between two checks pieces are only
collected, and only the last `LOOK` characters before them are kept.

1. A check says whether the last `WINDOW` characters consist of laps (`lap_of`): one unit repeated exactly, except for
   numbers that count, or except for small edits without new words. A check has bounded cost, so the total cost is
   linear in the text.
2. Windows overlap by half, and a unit is at most half a window: laps in consecutive windows are one repetition, which
   may be longer than the kept text.
3. Length decides, not the number of laps, which reaches 21 in healthy texts. `LEAST` characters are enough if a unit of
   several words repeats exactly. A unit of few words may be data (a grid of zeros, the base64 of a blank image), and
   laps that differ may be rows that somebody wants: each of these two cases needs `DOUBT` times as many.

The figures behind the limits: `python -m benchmarks.runaway`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import AnyStr, Final, NamedTuple

from rapidfuzz.distance import Levenshtein

LOOK: Final = 2048
"""Characters from one check to the next, and the longest unit."""
WINDOW: Final = 2 * LOOK
LEAST: Final = WINDOW
"""The length of the shortest repetition that is too long. 12,495 files that programs come with, and 179,971 recorded
arguments, have no such exact laps of several words; of 160 recorded answers that repeat a unit, 157 exceed 4,000."""
LEAST_LAPS: Final = 5
DOUBT: Final = 4
"""The factor for `LEAST` in doubtful cases. At 4, four of those files are found, all of them rows of numbers; at 1, 79
files and two arguments are found, one of which is 4,096 characters of base64."""
FEW_WORDS: Final = 2
"""A unit with at most so many different words may be data: `0, 1, `, `null, `, `AAAA`, `=`."""
LONGEST_WORD: Final = 40
"""The most characters of a word; a longer one is data."""
STEADY: Final = 0.8
"""A number counts if at least this share of its steps from lap to lap go in one direction. The others start again."""
EDITED: Final = 0.1
"""The share of characters in which a lap may differ from the lap before it."""
FEW_DIGITS: Final = 0.05
"""The share of a window's characters that may be digits if laps have edits: tables have more."""
PROBE: Final = 32
"""The characters of a probe. Probes from `PROBES` places of a window are searched before their places, to find the
length of a lap with edits."""
PROBES: Final = 6
FOUND: Final = 3
"""How many probes must be found, at distances that differ by at most the share `EDITED`."""

_DIGITS: Final = "0123456789"
_NUMBER: Final = re.compile("[0-9]+")
_WORD: Final = re.compile(r"\b[A-Za-z_][\w+/=-]*|[^\W0-9A-Za-z_]")
"""A word, or a letter of a script that does not separate words. Numbers are not words; no word ends within base64."""
_DRAWN_OUT: Final = re.compile(r"(.)\1{3}")
"""A character four times in a row, such as zeros in base64: the text around it is data, not a word."""
_TOKEN: Final = re.compile(r"\w+")
_ESCAPED: Final = re.compile(r"\\[nrt]")
"""White space as it is written in a JSON string."""
_BLANK: Final = re.compile(r"[nrt]?(?:\s|\\[nrt]?)*+")
"""White space and backslashes before it, of strings within strings; an escape may be cut at both ends."""


class Lap(NamedTuple):
    """The unit that a window repeats: the last lap in the window. `exact`: all laps are equal."""

    unit: str
    exact: bool


class Runaway(NamedTuple):
    """A repetition that is too long.

    `begin`: the place from which on all text is known to repeat; the repetition may have begun up to `LOOK` characters
    earlier. `end`: the place of the last check. `unit`: the newest lap.
    """

    begin: int
    end: int
    unit: str
    exact: bool

    @property
    def laps(self) -> int:
        """The least number of times that the unit has repeated."""
        return (self.end - self.begin) // len(self.unit)


class GrowingText:
    """A text that is still growing. `found`: the repetition, once there is one; later text is not checked. `missing`:
    how many characters must arrive before the next check."""

    __slots__ = ("_begin", "_begin_exact", "_end", "_new", "_period", "_tail", "found", "missing")

    def __init__(self) -> None:
        self.found: Runaway | None = None
        self.missing = LOOK
        self._tail = ""
        self._new: list[str] = []
        self._end = 0
        self._begin: int | None = None
        self._begin_exact: int | None = None
        self._period = 0

    def add(self, piece: str) -> Runaway | None:
        """Add a piece, or many pieces joined; return the repetition found by now, or None."""
        if piece and self.found is None:
            self._new.append(piece)
            self.missing -= len(piece)
            if self.missing <= 0:
                self._look()
        return self.found

    def _look(self) -> None:
        """Check each window that is complete by now, and keep the text that the next one needs."""
        text = self._tail + "".join(self._new)
        end = len(self._tail) + LOOK
        while end <= len(text) and self.found is None:
            self._end += LOOK
            if end >= WINDOW:
                self._continue(lap_of(text[end - WINDOW : end]))
            end += LOOK
        seen = end - LOOK
        self._tail = text[max(0, seen - LOOK) : seen]
        self._new = [text[seen:]]
        self.missing = LOOK - (len(text) - seen)
        if self.found is not None:
            self._tail, self._new = "", []

    def _continue(self, lap: Lap | None) -> None:
        """Add the newest window's lap to the repetition; None ends the repetition."""
        if lap is None:
            self._begin = self._begin_exact = None
            return
        begin, period = self._end - WINDOW, len(lap.unit)
        if self._begin is None:
            self._begin = begin
        if not lap.exact:
            self._begin_exact = None
        elif self._begin_exact is None or period != self._period:
            self._begin_exact = begin
        self._period = period
        least = max(LEAST * (DOUBT if may_be_data(lap.unit) else 1), LEAST_LAPS * period)
        if self._begin_exact is not None and self._end - self._begin_exact >= least:
            self.found = Runaway(self._begin_exact, self._end, *lap)
        elif self._end - self._begin >= DOUBT * least:
            self.found = Runaway(self._begin, self._end, lap.unit, False)


def may_be_data(unit: str) -> bool:
    """Whether a unit has so few words that programs and data may repeat it too. White space is not data."""
    if _BLANK.fullmatch(unit):
        return False
    words = _WORD.findall(_ESCAPED.sub(" ", 2 * unit))[1:-1]  # of two laps, so that each word is whole once
    return len({word for word in words if len(word) <= LONGEST_WORD and not _DRAWN_OUT.search(word)}) <= FEW_WORDS


def end_of_first_lap(text: str, found: Runaway) -> int:
    """Return where the first lap of a repetition ends in the whole text: the text up to there is worth keeping. If laps
    differ, this is the end of a line if there is one."""
    start, period = found.begin, len(found.unit)
    if found.exact:
        while start and text[start - 1] == text[start - 1 + period]:
            start -= 1
        return start + period
    line = text.find("\n", start + period, start + 2 * period)
    return start + period if line < 0 else line + 1


def lap_of(window: str) -> Lap | None:
    """Return the lap that a window repeats from its beginning to its end; None if it repeats nothing."""
    if period := _exact_period(window):
        return Lap(window[-period:], exact=True)
    if _BLANK.fullmatch(window):
        return Lap(window[-1:], exact=True)
    period = _counting_period(window) or _edited_period(window)
    return Lap(window[-period:], exact=False) if period else None


def _exact_period(window: AnyStr) -> int:
    """Return the shortest period, of at most half the window; 0 if there is none.

    If there is one, the first half of the window is found again exactly one period later: it contains a whole unit,
    which occurs only once in each period."""
    at = window.find(window[: (len(window) + 1) // 2], 1)
    return at if at > 0 and window[at:] == window[:-at] else 0


def _counting_period(window: str) -> int:
    """Return the period of a window in which only numbers change, each in one direction; 0 if there is none."""
    if not _exact_period(window.encode("utf-8", "surrogatepass").translate(None, _DIGITS.encode())):
        return 0
    masked = _NUMBER.sub("0", window)
    period = _exact_period(masked)
    if not period or len(masked) < LEAST_LAPS * period:
        return 0
    each = masked[:period].count("0")
    numbers = [int(number) for number in _NUMBER.findall(window)[1:-1]]  # those at the ends may be cut
    if not each or not all(_is_counting(numbers[first::each]) for first in range(each)):
        return 0
    return len(window) * period // len(masked)


def _is_counting(numbers: Sequence[int]) -> bool:
    """Whether nearly all of these numbers rise or stay the same, or nearly all fall or stay the same."""
    steps = [new - old for old, new in pairwise(numbers)]
    return max(sum(step >= 0 for step in steps), sum(step <= 0 for step in steps)) >= STEADY * len(steps)


def _edited_period(window: str) -> int:
    """Return the period of a window in which each lap is the previous lap with small edits, without new words or
    numbers; 0 if there is none."""
    half = len(window) // 2
    distances = []
    for at in range(len(window) - PROBE, half, -(half // PROBES)):
        before = window.rfind(window[at : at + PROBE], max(0, at - half), at + PROBE - 1)
        if before >= 0:
            distances.append(at - before)
    distances.sort()
    if len(distances) < FOUND or distances[FOUND - 1] * (1 - EDITED) > distances[0]:
        return 0
    period = distances[FOUND // 2]
    if sum(map(window.count, _DIGITS)) > FEW_DIGITS * len(window):
        return 0
    if not set(_TOKEN.findall(window[half:])[1:-1]) <= set(_TOKEN.findall(window[:half])):  # the ends may be cut
        return 0
    most = int(EDITED * (len(window) - period))
    return period if Levenshtein.distance(window[period:], window[:-period], score_cutoff=most) <= most else 0
