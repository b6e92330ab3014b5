"""The settings that detectors read, as protocols, and the constants that detectors and settings share.

The settings themselves are in `policy` and know every detector by its `Kind`; so detectors know settings only by these
protocols.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from callfuse.model.spent import Unit

LONGEST_LAP: Final = 5
"""Rounds in the longest sequence that is a cycle."""


class Similarity(Protocol):
    """How similar two texts are; hashable."""

    @property
    def algorithm(self) -> str:
        """`levenshtein`, `levenshtein_json` or `jaccard`."""

    @property
    def normalize_whitespace(self) -> bool:
        """Runs of white space count as one blank."""

    @property
    def ignore_case(self) -> bool:
        """Capitals count as small letters."""

    @property
    def ignore_word_order(self) -> bool:
        """Texts of several words are also compared with their words in order of the alphabet."""

    @property
    def ignore_array_order(self) -> bool:
        """Lists are compared whatever the order of their elements."""

    def __hash__(self) -> int:
        """Must be hashable: results that depend on it are cached by it."""


class Detectors(Protocol):
    """What is set for single kinds of loops."""

    def finds(self, kind: str) -> bool:
        """Whether findings of a kind are reported at all."""

    def may_withhold(self, kind: str) -> bool:
        """Whether the caps of a kind let its findings keep a call from the client."""

    def hardest(self, kind: str, *, hard: bool, waits: bool) -> int:
        """How hard a finding of this kind may be acted on; the higher, the harder. `hard`: it is beyond its hard limit;
        `waits`: it is of a stretch that waits for something."""


class BudgetLimits(Protocol):
    """The limits of a budget; 0 is off."""

    @property
    def warn_at(self) -> float:
        """The part of a limit from which on the model is warned; 0 is off."""

    def limit(self, unit: Unit) -> int:
        """The limit of a unit, of money in millionths."""


class Settings(Protocol):
    """The settings in force for an exchange or for a tool. Times are seconds; a limit of 0 is off."""

    @property
    def enabled(self) -> bool:
        """Whether anything is to be found."""

    @property
    def max_repeats(self) -> int:
        """Equal calls with equal outcomes, the pending one included."""

    @property
    def max_repeats_changing(self) -> int:
        """Equal calls whatever the outcomes."""

    @property
    def max_calls(self) -> int:
        """Calls in a timeline."""

    @property
    def max_calls_of_tool(self) -> int:
        """Calls of one tool in a timeline."""

    @property
    def max_calls_per_answer(self) -> int:
        """Calls in one answer."""

    @property
    def max_weighted_calls(self) -> int:
        """Calls in a timeline by their weights."""

    @property
    def budget(self) -> BudgetLimits:
        """What may be spent."""

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
        """Rounds in which a call counts as known."""

    @property
    def reach(self) -> int:
        """How many rounds back a looping call may have occurred: the window, or the longest lap."""

    @property
    def highest_limit(self) -> int:
        """The longest streak that any limit looks at, in rounds."""

    @property
    def similarity_threshold(self) -> float | None:
        """How similar (0 to 1) calls must be to count as one; None is off."""

    @property
    def similarity(self) -> Similarity:
        """How likeness is measured."""

    @property
    def poll_factor(self) -> int:
        """How many times as high limits are for a stretch with a poller in it."""

    @property
    def has_state_changing(self) -> bool:
        """Whether a call of any tool may be progress whatever it returns."""

    @property
    def detectors(self) -> Detectors:
        """What is set for single kinds."""

    @property
    def caps(self) -> Sequence[Detectors]:
        """What is set for single kinds, for all tools and for single ones."""

    def limit_of(self, kind: str) -> int:
        """The soft limit of a kind that has one in the section `detectors`."""

    def for_tool(self, name: str) -> "ForTool":
        """Return the settings in effect for a tool; for `ANY_TOOL`, the settings under which most would be found."""


class ForTool(Protocol):
    """What holds for one tool."""

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
