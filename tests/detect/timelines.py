"""Timelines written as words, so that a rule of detection reads as one line.

In: rounds, oldest first, each a text of calls: `a` is a call of tool `a`, `a1` the same tool with other arguments, `a@`
with an argument that says that it waits. `a=x` brought the outcome `x` (without it the outcome is unknown), `a=!x` the
error `x`, `a=~x` that something still runs, `a=^x` an error whose cause lies outside, `a=?x` that there is no tool of
this name. `!a` was withheld, `!!a` blocked,
`-a` stands in the ledger only: the client has dropped its round.
"""

import re
from collections.abc import Collection, Sequence
from itertools import count

from callfuse.detect import Engine
from callfuse.detect.detector import Detector
from callfuse.detect.registry import DETECTORS
from callfuse.model import Delivery, Finding, PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

_CALL = re.compile(r"(!{0,2}|-)([a-z_]*)(@?)(\d*)(?:=([!~^?]?)([\w'./:]*))?")
_SAYS = {
    "": "came back {}",
    "!": "Error: {}",
    "~": "The job is still running: {}",
    "^": "Error: 429 Too Many Requests, {}",
    "?": "Unknown tool. {}",
}


_DELIVERIES = {
    "": Delivery.DELIVERED,
    "-": Delivery.DROPPED,
    "!": Delivery.WITHHELD,
    "!!": Delivery.BLOCKED,
}


def call(word: str, call_id: str = "pending") -> ToolCall:
    """One call that is to come."""
    return past(word, call_id).call


def past(word: str, call_id: str = "pending") -> PastCall:
    """One call of the past."""
    match = _CALL.fullmatch(word)
    assert match, word
    marks, tool, waits, number, said, outcome = match.groups()
    waiting = ',"action":"poll"' if waits else ""
    arguments = f'{{"n":{number or 0}{waiting}}}'
    result = None
    if outcome is not None:
        result = Result(_SAYS[said].format(outcome.replace("_", " ")), True if said in ("!", "^") else None)
    made = PastCall(ToolCall(call_id, tool, arguments), result, delivery=_DELIVERIES[marks], step=int("!" in marks))
    if marks == "-":
        gone = ToolCall(call_id, tool, "", signature=made.signature, has_arguments=False)
        return PastCall(gone, outcome=made.outcome, delivery=Delivery.DROPPED)
    return made


def calls(text: str) -> list[ToolCall]:
    """The calls of a pending round."""
    return [call(word, f"pending{at}") for at, word in enumerate(text.split())]


def rounds(*texts: str, times: Sequence[float | None] = ()) -> list[Round]:
    """Rounds, oldest first, with ids in order."""
    ids = count()
    known = [*times, *([None] * len(texts))]
    return [
        Round(tuple(past(word, f"id{next(ids)}") for word in text.split()), 1 + 2 * at, known[at])
        for at, text in enumerate(texts)
    ]


def timeline(
    *texts: str, times: Sequence[float | None] = (), now: float = 0.0, tools: Collection[str] | None = None
) -> Timeline:
    """The timeline of these rounds; `tools` are those that the request declares, where it declares all."""
    made = rounds(*texts, times=times)
    has_blocks = any(one.blocked for round_ in made for one in round_.calls)
    declares = None if tools is None else tools.__contains__
    return Timeline(made[::-1], now, has_blocks=has_blocks, declares=declares)


class _OneKind(Engine):
    """An engine whose only detector is one of this type, whatever its pre-check says."""

    def __init__(self, past: Timeline, settings: LoopSettings, detector: Detector) -> None:
        super().__init__(past, settings)
        self.awake = frozenset(one for one in DETECTORS if type(one) is type(detector))


def found(detector: Detector, past: Timeline, settings: LoopSettings, pending: ToolCall) -> Finding | None:
    """What one detector finds in a pending call, as if it came alone."""
    return _OneKind(past, settings, detector).judge(pending)


class Rule:
    """What one detector finds, under some settings."""

    def __init__(self, detector: Detector, **settings: object) -> None:
        self.detector = detector
        self.settings = settings

    def found(
        self,
        *texts: str,
        pending: str = "a",
        times: Sequence[float | None] = (),
        now: float = 0.0,
        tools: Collection[str] | None = None,
        **settings: object,
    ) -> Finding | None:
        """What it finds in a pending call after these rounds."""
        past = timeline(*texts, times=times, now=now, tools=tools)
        return found(self.detector, past, LoopSettings.model_validate(self.settings | settings), call(pending))

    def count(self, *texts: str, **more: object) -> int:
        """The count of what it finds; 0 where nothing is found."""
        finding = self.found(*texts, **more)  # type: ignore[arg-type]
        return finding.count if finding else 0
