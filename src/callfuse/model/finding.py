"""What a detector reports."""

from dataclasses import dataclass

from callfuse.model.signature import Signature


@dataclass(slots=True)
class Finding:
    """What a detector reports of a pending call. Nothing of it is ever changed.

    `kind` is the name of the detector's kind, such as `repeat`; `kinds` are all that hit, where there are more than
    one. `count` and `threshold` are in the detector's unit (calls, rounds or laps) with the pending one; `window_s` is
    the longest pause between two rounds of it; `calls` are the ids it rests on, oldest first; `previous` is what came
    back last, shortened; None if no result is known. `ends_on_news`: a new call in the same round shows progress and
    voids the finding; `whole_round`: only a round of exactly these signatures is meant. `lap` are the tools of a
    cycle's rounds, in order. `in_answer`: it rests on calls of the pending round alone.
    """

    kind: str
    tool: str
    signature: Signature
    count: int
    threshold: int
    window_s: float
    hard: bool
    confidence: float = 1.0
    calls: tuple[str, ...] = ()
    previous: str | None = None
    ends_on_news: bool = True
    whole_round: frozenset[Signature] | None = None
    lap: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    in_answer: bool = False
