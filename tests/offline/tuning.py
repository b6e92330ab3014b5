"""Runs for tuning, written as words: a round is a text of calls, `a` a call of tool `a`, `a1` with other arguments.

`a=x` brought `x`, `a=!x` the error `x`, and `a` alone what no other word brings.
"""

import re
from collections.abc import Sequence
from typing import Any

from callfuse.model import PastCall, Result, Round, ToolCall
from callfuse.offline.runs import RecordedRun

LETTERS = str.maketrans("0123456789", "qrstuvwxyz")  # digits alone do not tell results apart
_CALL = re.compile(r"([a-z_]+)(\d*)(?:=(!?)(\w*))?")


def run_of(*turns: Sequence[str], success: bool | None = True, source: str = "lab") -> RecordedRun:
    """A run of turns, each a list of rounds."""
    listed = [
        [
            Round(tuple(call(word, f"{at}.{n}") for n, word in enumerate(text.split())), at)
            for at, text in enumerate(turn)
        ]
        for turn in turns
    ]
    return RecordedRun("r", source, "m", success, listed)


def call(word: str, id_: str = "") -> PastCall:
    """One call."""
    name, arguments, result = _read(word)
    return PastCall(ToolCall(id_, name, arguments), Result(result))


def record_of(*rounds: str, success: bool | None = True, source: str = "lab") -> dict[str, Any]:
    """A run as a record of a file."""
    calls = [
        dict(zip(("name", "arguments", "result"), _read(word), strict=True)) | {"turn": at}
        for at, text in enumerate(rounds)
        for word in text.split()
    ]
    return {"id": "r", "source": source, "success": success, "calls": calls}


def _read(word: str) -> tuple[str, str, str]:
    match = _CALL.fullmatch(word)
    assert match, word
    name, number, failed, result = match.groups()
    text = f"came back {(name + number).translate(LETTERS) if result is None else result}"
    return name, f'{{"n":{number or 0}}}', f"Error: {text}" if failed else text
