"""The declaration of a kind of loop: its name, its setting, its sentences and its caps.

Settings, their schema and documentation, the texts of findings, `replay` and `tune` are derived from these records.
"""

from dataclasses import dataclass
from typing import Final

from callfuse.detect.settings import LONGEST_LAP

_ROUNDS: Final = {"rounds": 1, "calls": 1, "answers": 1, "requests": 1, "agents": 1, "compactions": 1}
"""Rounds per unit; any other unit (laps) can take up to `LONGEST_LAP`."""


@dataclass(frozen=True, slots=True)
class SoftLimit:
    """A key of the section `detectors`: the soft limit of a kind, from 2; 0 is off.

    `default` is the value of `true`, and the default setting unless `on` is False (then 0). `about` is its text in the
    documentation. `in_records`: recorded runs contain what the detector reads; if not, `tune` turns it off.
    """

    unit: str
    default: int
    about: str
    on: bool = True
    in_records: bool = True

    @property
    def rounds_each(self) -> int:
        """The most rounds that one unit takes."""
        return _ROUNDS.get(self.unit, LONGEST_LAP)


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A part of an answer in which a kind may be found, with a key for the strictest rung of findings there, or `off`.

    `default`: the default rung, by its name. `about` is its text in the documentation. `seen`: as in `Kind`, for
    findings there; empty: the kind's own.
    """

    name: str
    default: str
    about: str
    seen: str = ""


ARGUMENTS: Final = "arguments"
TEXT: Final = "text"
REASONING: Final = "reasoning"
FINISH: Final = "finish"
"""The parts of an answer: the arguments of its calls, its text, its reasoning, and the vendor's finish reason."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of loop.

    `seen` ends a sentence that begins with 'this is'; it may have the placeholders `{count}`, `{tool}`, `{lap}` and
    `{confidence}`. It is replaced, unless the text is empty, by `seen_in_answer` if all calls are in one answer, by
    `seen_uncompared` if results are not known to be equal, and by `seen_returned` for a call that comes back after its
    block, not in a row. `suggestion` is a sentence on what to try.

    `limit`: its soft limit in the section `detectors`; None for a kind whose limits are settings of their own:
    `limited_by` names these (empty: its limits are fixed), and `about` is the text of its switch there.

    `specific`: its sentence says more, so it is shown if several kinds hit equally hard. `spares_pollers`: its limits
    are `poll_factor` times as high if a call of the stretch waits for something, and five thirds as high if one acts on
    a screen. `ends_round`: calls after one with this finding are not judged, and are treated like that call.

    `most`: the cap, which is the strictest rung of its findings by default, by its name; empty: any. `most_hard`: the
    same from its hard limit on; empty: as `most`.
    """

    name: str
    seen: str
    suggestion: str
    limit: SoftLimit | None = None
    most: str = ""
    seen_in_answer: str = ""
    seen_uncompared: str = ""
    seen_returned: str = ""
    most_hard: str = ""
    limited_by: str = ""
    about: str = ""
    specific: bool = False
    spares_pollers: bool = False
    ends_round: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def climbs(self) -> bool:
        """Whether a hard finding climbs the ladder step by step, because a cap ends at the hard limit; else it leads to
        the last rung at once."""
        return bool(self.most_hard)
