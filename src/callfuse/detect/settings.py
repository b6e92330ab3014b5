"""The settings that detectors read, as protocols, and the constants that detectors and settings share.

The settings themselves are in `policy`, which imports every detector's `Kind`; so detectors use settings only through
these protocols.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from callfuse.model.spent import Unit

LONGEST_LAP: Final = 5
"""Rounds in the longest sequence that is a cycle."""


class Similarity(Protocol):
    """How to measure the similarity of two texts; hashable."""

    @property
    def algorithm(self) -> str:
        """`levenshtein`, `levenshtein_json` or `jaccard`."""

    @property
    def normalize_whitespace(self) -> bool:
        """Whether runs of white space count as one blank."""

    @property
    def ignore_case(self) -> bool:
        """Whether upper and lower case count as equal."""

    @property
    def ignore_word_order(self) -> bool:
        """Whether texts of several words are also compared with their words in alphabetical order."""

    @property
    def ignore_array_order(self) -> bool:
        """Whether lists are compared without regard to the order of their elements."""

    def __hash__(self) -> int:
        """Return a hash: results that depend on the object are cached by it."""


class Detectors(Protocol):
    """The settings of single kinds of loops."""

    def finds(self, kind: str) -> bool:
        """Whether findings of a kind are reported at all."""

    def may_withhold(self, kind: str) -> bool:
        """Whether the caps of a kind allow its findings to withhold a call."""

    def hardest(self, kind: str, *, hard: bool, waits: bool) -> int:
        """Return the hardest rung for a finding of this kind, as a number that grows with hardness. `hard`: the finding
        has reached its hard limit; `waits`: a call of its stretch waits for something."""


class BudgetLimits(Protocol):
    """The limits of a budget; 0 means off."""

    @property
    def warn_at(self) -> float:
        """The share of a limit from which on the model is warned; 0 means off."""

    def limit(self, unit: Unit) -> int:
        """Return the limit of a unit; of money in millionths."""


class Settings(Protocol):
    """The settings in force for an exchange or for a tool. Times are in seconds; a limit of 0 means off."""

    @property
    def enabled(self) -> bool:
        """Whether detection is on."""

    @property
    def max_repeats(self) -> int:
        """The limit of equal calls with equal outcomes, including the pending one."""

    @property
    def max_repeats_changing(self) -> int:
        """The limit of equal calls, whatever the outcomes."""

    @property
    def max_calls(self) -> int:
        """The most calls in a timeline."""

    @property
    def max_calls_of_tool(self) -> int:
        """The most calls of one tool in a timeline."""

    @property
    def max_calls_per_answer(self) -> int:
        """The most calls in one answer."""

    @property
    def max_weighted_calls(self) -> int:
        """The highest weight of the calls in a timeline."""

    @property
    def budget(self) -> BudgetLimits:
        """The limits of what may be spent."""

    @property
    def no_repeats_after(self) -> int:
        """The weight of a timeline after which `late` is in force."""

    @property
    def late(self) -> "Settings":
        """The settings in force beyond `no_repeats_after`."""

    @property
    def ttl_seconds(self) -> float:
        """The longest pause between two rounds of a streak."""

    @property
    def window(self) -> int:
        """How many rounds back an equal call makes a call known."""

    @property
    def reach(self) -> int:
        """How many rounds back a looping call may have occurred: the window, or the longest lap."""

    @property
    def highest_limit(self) -> int:
        """The longest streak that any limit needs, in rounds."""

    @property
    def similarity_threshold(self) -> float | None:
        """How similar (0 to 1) calls must be to count as one; None means off."""

    @property
    def similarity(self) -> Similarity:
        """How similarity is measured."""

    @property
    def poll_factor(self) -> int:
        """How many times as high limits are for a stretch with a poller in it."""

    @property
    def has_state_changing(self) -> bool:
        """Whether a call of any tool may be progress whatever it returns."""

    @property
    def detectors(self) -> Detectors:
        """The settings of single kinds."""

    @property
    def caps(self) -> Sequence[Detectors]:
        """The settings of single kinds: those for all tools, and those of single tools."""

    def limit_of(self, kind: str) -> int:
        """Return the soft limit of a kind that has one in the section `detectors`."""

    def for_tool(self, name: str) -> "ForTool":
        """Return the settings in effect for a tool; for `ANY_TOOL`, those under which the most would be found."""


class ForTool(Protocol):
    """The settings and properties of one tool."""

    @property
    def settings(self) -> Settings:
        """The settings in force for the tool."""

    @property
    def poller(self) -> bool:
        """Whether the tool is meant to be called again and again."""

    @property
    def on_screen(self) -> bool:
        """Whether the tool acts on a screen: its result may not show what it has changed."""

    @property
    def takes_notes(self) -> bool:
        """Whether the tool only writes down what the agent thinks or plans: new text in its calls is not progress."""

    @property
    def changes_state(self) -> bool:
        """Whether a successful call of the tool ends every streak but its own."""

    @property
    def is_progress(self) -> bool:
        """Whether a successful call of the tool also ends its own streak."""

    @property
    def limits(self) -> dict[Any, Any]:
        """The limits of the detectors of calls and of results, cached by the engine."""
