"""The finding that a detector reports."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from callfuse.model.signature import Signature


class Stretch(NamedTuple):
    """Details of the stretch of rounds that a finding is about.

    `pattern` are the tools of a cycle's rounds, in order. `hard_from`: the count from which on the finding is hard; 0
    means never. `waits`: a call of the stretch waits for something external, or acts on a screen. `in_answer`: the
    stretch is only the pending round. `found_nothing`: the last result had no data. `last_digest`: the digest of the
    last outcome; empty if none is known. `compared`: two or more results are known, and all known results are equal.
    `returned`: a call was blocked, and the calls are not in a row. `part`: the part of the answer with the finding, if
    not a call: `text` or `reasoning`. `unit`: what a budget counts, in words.
    """

    pattern: tuple[str, ...] = ()
    hard_from: int = 0
    waits: bool = False
    in_answer: bool = False
    found_nothing: bool = False
    last_digest: bytes = b""
    compared: bool = True
    returned: bool = False
    part: str = ""
    unit: str = ""


ORDINARY: Final = Stretch()
NO_TOOL: Final = "-"
"""The tool of a finding that is not about a call."""


@dataclass(slots=True)
class Finding:
    """A detector's report on a pending call. Immutable.

    `kind` is the name of the detector's kind, such as `repeat`; `kinds` are all that hit, if there are several. `count`
    and `threshold` are in the detector's unit (calls, rounds or laps), including the pending one; `window_s` is the
    longest allowed pause between two rounds; `calls` are the ids it is based on, oldest first; `previous` is the last
    result, shortened; None if no result is known. `ends_on_news`: a new call in the same round shows progress and voids
    the finding; `whole_round`: the finding applies only to a round of exactly these signatures.
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
    stretch: Stretch = ORDINARY
    kinds: tuple[str, ...] = ()

    @property
    def pattern(self) -> tuple[str, ...]:
        """The tools of a cycle's rounds, in order; empty for other kinds."""
        return self.stretch.pattern

    @property
    def repetitions(self) -> int:
        """How often the pattern has repeated, with the pending round; 0 without a pattern."""
        return self.count if self.stretch.pattern else 0

    @property
    def hard_from(self) -> int:
        """The count from which on the finding is hard; 0 means never."""
        return self.stretch.hard_from

    @property
    def waits(self) -> bool:
        """Whether a call of the stretch waits for something external, or acts on a screen."""
        return self.stretch.waits

    @property
    def in_answer(self) -> bool:
        """Whether the finding is based on calls of the pending round alone."""
        return self.stretch.in_answer

    @property
    def found_nothing(self) -> bool:
        """Whether the last result had no data."""
        return self.stretch.found_nothing

    @property
    def part(self) -> str:
        """The part of the answer with the finding, if not a call: `text` or `reasoning`; else empty."""
        return self.stretch.part

    def given(self, digest: bytes) -> "Finding":
        """Return the finding once the pending call has an outcome with this digest: a different digest is news."""
        if digest == self.stretch.last_digest or not self.stretch.last_digest:
            return self
        return replace(self, stretch=self.stretch._replace(compared=False))
