"""Read the ratings of findings, and raise limits above false positives.

A finding that was not a loop means wrong action on a good run, whatever recorded runs show. So the limit of its kind is
raised for its tool, until its count is not a finding any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from callfuse.errors import ConfigError
from callfuse.policy.sections import LIMITS, SomeDetectors, ToolSettings
from callfuse.policy.settings import LoopSettings
from callfuse.policy.tiers import explicit_values

LONGEST_FILE: Final = 256 * 1024 * 1024
"""The most bytes of a file that are read."""
MOST_COUNT: Final = 100_000
"""The largest count that callfuse writes."""
FALSE_POSITIVE: Final = "false_positive"
_OF_TOOL: Final[Mapping[str, str]] = {"repeat": "max_repeats", "repeat_changing": "max_repeats_changing"}
"""The keys of a tool's own limits, by kind, unless they are in `detectors`. Budgets are excluded, because their owners
set them."""


@dataclass(frozen=True, slots=True)
class Said:
    """The last rating of a finding. `kind`, `tool`, `count`: those of the finding; `count` is in the kind's unit."""

    feedback: str
    kind: str
    tool: str
    count: int


@dataclass(frozen=True, slots=True)
class Raised:
    """A raised limit of a kind and a tool. `wrong`: the number of false positives; `later`: the number of real loops of
    the same kind and tool that are now found later, or not at all."""

    tool: str
    kind: str
    before: int
    limit: int
    wrong: int
    later: int

    @property
    def pattern(self) -> str:
        """The glob for the tool's own settings, which matches only its name."""
        return _exact(self.tool)

    @property
    def key(self) -> str:
        """The setting, below `per_tool` and the glob."""
        return _OF_TOOL.get(self.kind) or f"detectors.{self.kind}"

    def __str__(self) -> str:
        loops = f"; {self.later:,} that were loops are found later, too" if self.later else ""
        return f"{self.tool}: {self.key} {self.before} -> {self.limit}, for {_counted(self.wrong)}{loops}"


@dataclass(frozen=True, slots=True)
class Feedback:
    """The ratings of a file. `unread`: the number of lines that are not ratings."""

    said: tuple[Said, ...] = ()
    unread: int = 0

    @property
    def wrong(self) -> int:
        """The number of false positives."""
        return sum(one.feedback == FALSE_POSITIVE for one in self.said)

    @property
    def summary(self) -> str:
        """Summarize the file in a sentence."""
        unread = f"; lines without feedback: {self.unread:,}" if self.unread else ""
        findings = "finding" if len(self.said) == 1 else "findings"
        return f"feedback on {len(self.said):,} {findings}, {_counted(self.wrong)}{unread}"

    def apply(self, settings: LoopSettings) -> tuple[LoopSettings, list[Raised]]:
        """Raise limits above all false positives. Returns the settings, and the raised limits. No limit is lowered, and
        limits that are off stay off."""
        raised: list[Raised] = []
        for kind, tool in dict.fromkeys((one.kind, one.tool) for one in self.said if one.feedback == FALSE_POSITIVE):
            same = [one for one in self.said if (one.kind, one.tool) == (kind, tool)]
            done = _raise(settings, kind, tool, same)
            if done is not None:
                settings, one = done
                raised.append(one)
        return settings, raised


def read_feedback(path: Path) -> Feedback:
    """Read a file of `admin.feedback_file`. The last rating of a finding counts. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"--feedback {path}: cannot be read ({error.strerror})") from None
    if len(content) > LONGEST_FILE:
        raise ConfigError(f"--feedback {path}: longer than {LONGEST_FILE:,} bytes")
    return _feedback_of(content.splitlines())


def _feedback_of(lines: Iterable[bytes]) -> Feedback:
    said: dict[str, Said] = {}
    unread = 0
    for line in filter(None, map(bytes.strip, lines)):
        try:
            given = orjson.loads(line)
            said[given["finding"]] = _said(given)
        except (ValueError, TypeError, KeyError):
            unread += 1
    return Feedback(tuple(said.values()), unread)


def _said(given: Mapping[str, Any]) -> Said:
    """Read the rating of a line. Raises ValueError, TypeError or KeyError."""
    one = Said(given["feedback"], given["kind"], given["tool"], given["count"])
    texts = (one.feedback, one.kind, one.tool, given["finding"])
    if not all(isinstance(text, str) for text in texts) or type(one.count) is not int:
        raise TypeError
    if not (one.tool and 0 < one.count <= MOST_COUNT):
        raise ValueError
    return one


def _raise(settings: LoopSettings, kind: str, tool: str, same: list[Said]) -> tuple[LoopSettings, Raised] | None:
    """Raise the limit of a kind for a tool. Returns None if the kind is off, the limit is high enough, or tools cannot
    have their own limit."""
    own = settings.for_tool(tool)
    highest = max(one.count for one in same if one.feedback == FALSE_POSITIVE)
    factor = own.settings.poll_factor if own.poller else 1
    limit = highest // factor + 1
    key = _OF_TOOL.get(kind) or (kind if kind in LIMITS else "")
    before = _limit_of(own.settings, kind, key)
    if not 0 < before < limit:
        return None
    pattern = _exact(tool)
    values = explicit_values(settings.per_tool[pattern]) if pattern in settings.per_tool else {}
    if kind in LIMITS:
        known = values.get("detectors")
        limits = explicit_values(known) if known is not None else {}
        values["detectors"] = SomeDetectors(**{**limits, kind: limit})
    else:
        values[key] = limit
    update = {"per_tool": {**settings.per_tool, pattern: ToolSettings(**values)}}
    later = sum(one.feedback != FALSE_POSITIVE and one.count <= highest for one in same)
    wrong = sum(one.feedback == FALSE_POSITIVE for one in same)
    return settings.model_copy(update=update), Raised(tool, kind, before, limit, wrong, later)


def _limit_of(settings: LoopSettings, kind: str, key: str) -> int:
    """Return the soft limit of a kind for a tool; 0 if the kind is off, or if tools cannot have their own limit."""
    if not key:
        return 0
    if kind in LIMITS:
        return settings.limit_of(kind)
    value: int = getattr(settings, key)
    return value


def _counted(wrong: int) -> str:
    return f"{wrong:,} false positive{'' if wrong == 1 else 's'}"


def _exact(tool: str) -> str:
    """Return the glob that matches only this name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in tool)
