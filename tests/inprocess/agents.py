"""Agent runs written as words: rounds go through a detector, what is to be done about each call comes back."""

from collections.abc import Mapping
from typing import Any

from callfuse import LoopDetector, ToolCall
from callfuse.model import PastCall
from tests.detect import timelines


def settings(**keys: Any) -> Mapping[str, Any]:
    """A configuration in the shape of the file."""
    return {"tool_call_loop": keys}


def go(detector: LoopDetector, *rounds: str) -> list[str]:
    """Run an agent: rounds are texts of calls (`a`, `b1`, `a=x` with the result x; see `tests.detect.timelines`).

    For each round come the actions about its calls, `-` where nothing is found; a `+` behind them says that results
    have shown something.
    """
    return [_round(detector, [timelines.past(word) for word in text.split()]) for text in rounds]


def _round(detector: LoopDetector, calls: list[PastCall]) -> str:
    asked = [ToolCall(f"pending{at}", one.name, one.call.arguments) for at, one in enumerate(calls)]
    found = detector.check_round(asked)
    late = ""
    for call, past, one in zip(asked, calls, found, strict=True):
        if past.result is not None and not (one and one.withholds):
            shown = detector.record(past.result[0], call)
            late = f"+{shown.action}" if shown else late
    return " ".join(("allow" if one.action is None else str(one.action)) if one else "-" for one in found) + late
