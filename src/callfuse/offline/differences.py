"""Describe the first difference between two results of a call, which explains why a repeated call counted as new."""

import re
from itertools import zip_longest
from typing import Final

from callfuse.model.outcomes import SHORT_TEXT, Outcome, OutcomeKind
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.outcomes.outcome import BRIEF
from callfuse.model.secrets import star_secrets
from callfuse.observe.printable import printable

MOST_NUMBERS: Final = 3
"""The most numbers that are shown."""
LONGEST: Final = 40
"""The most characters of a line that are shown."""
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def difference(older: Outcome, newer: Outcome) -> str:
    """Return the first difference in the comparison of results, `40 -> 55` or `line 2: a -> b`; empty if they are
    equal."""
    if older.digest == newer.digest:
        return ""
    if older.kind is not newer.kind:
        return f"{_KINDS[older.kind]} -> {_KINDS[newer.kind]}"
    lines = zip_longest(older.text.splitlines(), newer.text.splitlines(), fillvalue="")
    for at, (one, other) in enumerate(lines, 1):
        if _compared(one, older) != _compared(other, newer):
            one, other = star_secrets(one), star_secrets(other)
            return _numbers(one, other) or f"line {at}: {_shown(one)} -> {_shown(other)}"
    if max(len(older.text), len(newer.text)) >= SHORT_TEXT:
        return f"something after the first {SHORT_TEXT} characters"
    return "something that is not text"


_KINDS: Final = {OutcomeKind.OK: "a result", OutcomeKind.NO_DATA: "no data", OutcomeKind.ERROR: "an error"}


def _compared(line: str, outcome: Outcome) -> bytes:
    is_short = outcome.kind is OutcomeKind.OK and not outcome.pending and len(outcome.text) <= BRIEF
    return normalise(line.strip(), keep_numbers=outcome.kind is not OutcomeKind.ERROR, is_short=is_short)


def _numbers(one: str, other: str) -> str:
    """Return the numbers that differ between two lines; an empty text if anything else differs."""
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return ""
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    changed = [f"{before} -> {after}" for before, after in pairs if before != after]
    more = f" and {len(changed) - MOST_NUMBERS} more" if len(changed) > MOST_NUMBERS else ""
    return ", ".join(changed[:MOST_NUMBERS]) + more


def _shown(line: str) -> str:
    text = printable(" ".join(line.split()))
    return repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...")
