"""`truncated`: in consecutive rounds, the limit on the answer's length cuts off the same call within its arguments. Off
by default.

The arguments of a call end before they are complete, and begin as those of the round before. A pending call counts
whatever finish reason the vendor gives: some report complete calls although they are cut off. The rounds before it are
read from the history if it has arguments as texts. If it has them as values, it does not show that they were cut off;
then the ledger knows it from earlier answers (`Timeline.cut_off`).
"""

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import ClassVar, Final

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Detector, Evidence
from callfuse.detect.facts import ends_early, is_cut_off
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.streak import unbroken
from callfuse.model import PastCall, Timeline, ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.timeline import CutOffKey

BEGINNING: Final = 40
"""Calls are the same if so many characters at the beginning of their arguments are equal."""

Key = tuple[str, str]
"""The tool of a call, and the beginning of its arguments."""
Streaks = dict[Key, list[PastCall]]
"""The calls that were cut off in consecutive rounds, newest first, one of each round."""


class Truncated(Detector):
    """Finds a call that is too long for an answer, again and again."""

    kind = Kind(
        "truncated",
        seen="round {count} in a row in which a call of {tool} is cut off before its arguments are complete",
        suggestion="An answer cannot hold all of it: write less at once, in several calls.",
        limit=SoftLimit(
            "rounds",
            3,
            "Rounds in a row with a call of one tool whose arguments begin alike and are cut off. Warns at most. Off "
            "by default.",
            on=False,
        ),
        most="warn",
    )
    needs = facts.CUT_OFF
    of_cut_off: ClassVar[bool] = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the kind's limit, never hard."""
        return tool.settings.limit_of(self.kind.name), 0

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall] | None:
        """Return the newest call of each streak; None if the ledger knows a streak, because it only has digests."""
        if timeline.cut_off:
            return None
        tools = {name for name, _ in timeline.memoized(_streaks, settings)}
        own = {name: timeline.memoized(_streaks, settings.for_tool(name).settings) for name in tools}
        return [calls[0].call for name in tools for (tool, _), calls in own[name].items() if tool == name]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the rounds in a row in which the same call was cut off, if this call is cut off too."""
        if not ends_early(call):
            return None
        streak = timeline.memoized(_streaks, settings).get(_key(call), [])
        before = max(len(streak), timeline.cut_off.get(cut_off_key(call), 0) if timeline.cut_off else 0)
        return Evidence(1 + before, tuple(streak[:NAMED])) if before else None


def _key(call: ToolCall) -> Key:
    return call.full_name, call.arguments[:BEGINNING]


def without_end(call: ToolCall) -> ToolCall:
    """Return a call that was cut off with its arguments as text; a native value loses its last character."""
    if isinstance(call.arguments, str):
        return call
    return ToolCall(call.id, call.name, call.text[:-1], namespace=call.namespace, kind=call.kind)


def cut_off_key(call: ToolCall) -> CutOffKey:
    """Return the key by which the ledger keeps a call that was cut off."""
    tool, begin = _key(without_end(call))
    return bounded_id(tool), blake2b(begin.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _streaks(timeline: Timeline, settings: Settings) -> Streaks:
    """Return the streaks of cut-off calls that the next round could continue."""
    streaks: Streaks = {}
    going_on: Collection[Key] | None = None
    for round_ in unbroken(timeline, settings):
        cut = {_key(one.call): one for one in round_.distinct if is_cut_off(one)}
        if not cut and not round_.executed:
            continue
        going_on = [key for key in cut if going_on is None or key in going_on]
        if not going_on:
            break
        for key in going_on:
            streaks.setdefault(key, []).append(cut[key])
    return streaks
