"""`no_difference`: calls of one tool that differ only in a detail, and return the same result.

A detail is white space, upper or lower case, a comment in a command, an `echo` before it; or one argument among others,
such as the number of the attempt, a reason, a time. If only this argument differs, and each result is the same and of
some length, the result does not depend on the argument. Judged when results are known, among the calls of one tool,
whatever others do in between. In a call that changes something, an argument is not a detail; calls that wait or act on
a screen do not count.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.effects import Effect, effect_of
from callfuse.detect.facts import LONGEST_DETAIL, TELLING
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.pollers import polls
from callfuse.detect.settings import Settings
from callfuse.detect.shell import KEYS
from callfuse.detect.streak import oldest_first
from callfuse.memo import remembered
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import SHORT_TEXT, Outcome, OutcomeKind
from callfuse.model.signature import canonical_value
from callfuse.wire.jsontext import NotJSON, loads

QUESTIONS: Final = frozenset((*KEYS, "input", "query", "sql", "statement"))
"""Arguments that contain a command, a program or a question: their content is not a detail."""

_COMMENT: Final = re.compile(r"(?:^|(?<=[\s;&|]))#[^\n'\"]{0,200}+$", re.MULTILINE)
_SAYS: Final = re.compile(
    r"\s*(?:(?:echo|printf)\b(?P<said>[^\n;&|<>$`]{0,200})|(?:true|:)\s{0,8})(?:;|&&|\n)\s*",
)
"""A command at the beginning that only prints something, or does nothing."""


class NoDifference(Hindsight):
    """Finds calls that return the same result, whatever detail of them changes."""

    kind = Kind(
        "no_difference",
        seen="call {count} of {tool} that differs from those before in a detail only, and returns the same result",
        suggestion="What differs makes no difference: change what the result depends on, or continue from it.",
        limit=SoftLimit(
            "calls",
            8,
            "Calls of one tool with equal results that differ in white space, capitals, a comment or one argument "
            "among others. Warns at most.",
        ),
        most="warn",
    )
    needs = facts.DETAILS

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield the streak's calls up to each round that adds a call; one walk serves all rounds."""
        walk = _ByTool(settings)
        return reversed([walk.take(*one) for one in oldest_first(timeline, settings)])


class _Streak:
    """Calls of one tool that differ only in a detail, with equal results, oldest first.

    `moved`: the argument that differs, if any does.
    """

    def __init__(self, call: PastCall, gist: Mapping[str, str], result: object) -> None:
        self.calls = [call]
        self.result = result
        self.moved: Set[str] = frozenset()
        self._gist = gist
        self._signatures = {call.signature}

    def __len__(self) -> int:
        """The number of different calls."""
        return len(self._signatures)

    def moved_with(self, gist: Mapping[str, str]) -> Set[str]:
        """Return the arguments that differ among these calls and another call."""
        own = self._gist
        return self.moved | {key for key in {**own, **gist} if own.get(key) != gist.get(key)}

    def add(self, call: PastCall, moved: Set[str]) -> None:
        """Add a call; `moved` are the arguments that differ from now on."""
        self.moved = moved
        self._signatures.add(call.signature)
        self.calls.append(call)


class _ByTool:
    """Takes the rounds of a timeline, oldest first, and keeps the newest streak of each tool."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._streaks: dict[str, _Streak] = {}

    def take(self, round_: Round, paused: bool) -> Evidence | None:
        """Return the evidence that a round completes. `paused`: a pause follows the round."""
        executed = [one for one in round_.distinct if not one.withheld]
        of_tool = Counter([one.full_name for one in executed])
        found = [evidence for one in executed if (evidence := self._add(one, is_batch=of_tool[one.full_name] > 1))]
        if paused:
            self._streaks.clear()
        return max(found, key=lambda one: one.count, default=None)

    def _add(self, call: PastCall, *, is_batch: bool) -> Evidence | None:
        """Add a call with its result; return the evidence that the call completes. `is_batch`: its round has other
        calls of its tool, which were made without each other's results."""
        name, outcome, gist = call.full_name, call.outcome, _gist_of(call)
        if is_batch or gist is None or outcome is None:
            self._streaks.pop(name, None)
            return None
        result, streak = _result_of(outcome, gist.said), self._streaks.get(name)
        moved = streak.moved_with(gist.arguments) if streak and streak.result == result else None
        if streak is None or moved is None or not self._is_detail(moved, call, outcome, gist):
            self._streaks[name] = _Streak(call, gist.arguments, result)
            return None
        streak.add(call, moved)
        own = self._settings.for_tool(name).settings
        limit = own.limit_of(NoDifference.kind.name) if own.enabled else 0
        return Evidence(len(streak), tuple(streak.calls[: -NAMED - 1 : -1])) if 0 < limit <= len(streak) else None

    def _is_detail(self, moved: Set[str], call: PastCall, outcome: Outcome, gist: "_Gist") -> bool:
        """Whether the arguments that differ, if any, are a mere detail, and nothing else explains the equal result."""
        if len(moved) > 1 or self._says_nothing(call, outcome):
            return False
        if not moved:
            return True
        says_much = outcome.kind is OutcomeKind.OK and len(outcome.text) >= TELLING and len(gist.arguments) > 1
        return says_much and moved.isdisjoint(QUESTIONS) and effect_of(call.call, self._settings) is not Effect.CHANGES

    def _says_nothing(self, call: PastCall, outcome: Outcome) -> bool:
        """Whether something else explains an equal result: the call waits, or acts on a screen."""
        on_screen = self._settings.for_tool(call.full_name).on_screen
        return on_screen or outcome.pending or outcome.transient or polls(call.call, self._settings)


class _Gist(NamedTuple):
    """A call's arguments without their details, and the text that an `echo` before a command prints."""

    arguments: Mapping[str, str]
    said: str


def _gist_of(call: PastCall) -> _Gist | None:
    """Return the gist of a call; None if its arguments are too long, gone, or not an object."""
    text = call.call.text if call.call.has_arguments else ""
    return _read(text) if 0 < len(text) <= LONGEST_DETAIL else None


@remembered(entries=256, longest=LONGEST_DETAIL)
def _read(text: str) -> _Gist | None:
    """Read the gist of arguments. Memoized: each request of a session repeats its history."""
    try:
        value = loads(text)
    except NotJSON:
        return None
    if not isinstance(value, dict):
        return None
    said: list[str] = []
    return _Gist({key: _plain(key, one, said) for key, one in value.items()}, "\n".join(said))


def _plain(key: str, value: Any, said: list[str]) -> str:
    """Return a value in lower case, without white space and, in a command, without comments and leading `echo`s."""
    text = value if isinstance(value, str) else canonical_value(value).decode("utf-8", "replace")
    if key in KEYS:
        command, says = _COMMENT.sub("", text), []
        while found := _SAYS.match(command):
            says.append((found["said"] or "").strip(" \t'\""))
            command = command[found.end() :]
        if command.strip():
            text = command
            said += filter(None, says)
    return " ".join(text.split()).casefold()


def _result_of(outcome: Outcome, said: str) -> object:
    """Return a value that is equal for equal results. A short result that says more than an `echo` at its beginning is
    compared without the `echo`'s text."""
    rest = outcome.text.removeprefix(said).lstrip()
    if said and len(rest) >= TELLING and len(outcome.text) < SHORT_TEXT:
        return outcome.kind, rest
    return outcome.kind, outcome.digest, outcome.text
