"""`known_pairs`: known calls return their known results again, in any order.

Judged when results are known, and reported with the last of them. A pair is a call with its outcome; a round is known
if each of its pairs has occurred since the last change. A change is a successful call that was not known and that
changes something, or may (`effect_of`): editing and running the same failing test is work, however often. A pause also
resets the count. Calls that wait or were withheld, and unknown outcomes, do not count.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.effects import Effect, effect_of
from callfuse.detect.facts import WITHIN
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.pollers import polls
from callfuse.detect.settings import Settings
from callfuse.detect.streak import oldest_first
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.signature import Signature

Failure = tuple[Signature, bytes]
"""A call and the digest of its error."""


class KnownPairs(Hindsight):
    """Finds known calls with known results in any order: in more than half of the last 2 * limit rounds.

    One call with one error is enough if it reaches the limit within 20 rounds, including the first time.
    """

    kind = Kind(
        "known_pairs",
        seen="one of {count} recent rounds that went over the same ground: the same calls, the same results, and "
        "nothing changed in between",
        suggestion="All of it is known: continue from what it says, or do what has not been done yet.",
        limit=SoftLimit(
            "rounds",
            4,
            "Rounds of the last 20 with one call and the same error; or more than half of the last rounds (twice this "
            "number) with only known calls and results. Nothing changed in between. Warns at most.",
        ),
        most="warn",
    )
    needs = facts.PAIRS

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield the known rounds up to each known round; one walk serves all rounds."""
        walk = _Walk(settings)
        return reversed([walk.take(*one) for one in oldest_first(timeline, settings)])


def _limit(settings: Settings) -> int:
    return settings.limit_of(KnownPairs.kind.name)


class _Walk:
    """Takes the rounds of a timeline, oldest first, and keeps those since something has changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pairs = _Pairs()
        self._rounds: list[Sequence[PastCall]] = []
        self._known = [0]
        """How many of the first n rounds are known, for each n."""
        self._failures: dict[Failure, deque[tuple[int, PastCall]]] = {}
        """Calls that failed again with an error they had before, each with the number of its round."""

    def take(self, round_: Round, paused: bool) -> Evidence | None:
        """Return the evidence that a round completes. `paused`: a pause follows the round."""
        executed = [one for one in round_.distinct if not one.withheld]
        if True in [self._is_change(one) for one in executed]:
            self._start_anew()
        telling = [one for one in executed if self._tells(one)]
        found = self._add(telling) if telling else None
        for one in executed:
            self._pairs.add(one)
        if paused:
            self._start_anew()
            return None
        return found

    def _is_change(self, call: PastCall) -> bool:
        """Whether a call may have changed something. A repeated call counts if its tool changes state by the settings,
        or if it changes something and its outcome is new."""
        effect = effect_of(call.call, self._settings)
        if effect is Effect.READS or call.failed or polls(call.call, self._settings):
            return False
        if not self._pairs.has(call) or self._settings.for_tool(call.full_name).changes_state:
            return True
        return effect is Effect.CHANGES and not self._pairs.knows(call)

    def _start_anew(self) -> None:
        self._pairs.begin()
        self._rounds, self._known, self._failures = [], [0], {}

    def _tells(self, call: PastCall) -> bool:
        """Whether a call counts: the limit is on, it does not wait, is not a new note and, if repeated, has an
        outcome."""
        tool = self._settings.for_tool(call.full_name)
        own = tool.settings
        if not (own.enabled and _limit(own)) or polls(call.call, self._settings):
            return False
        if not self._pairs.has_lately(call):
            return not tool.takes_notes
        outcome = call.outcome
        return outcome is not None and not (outcome.pending or outcome.transient)

    def _add(self, calls: Sequence[PastCall]) -> Evidence | None:
        """Add a round's calls; return the evidence that they complete."""
        again = [one for one in calls if self._pairs.knows_lately(one)]
        is_known = len(again) == len(calls)
        self._rounds.append(calls)
        self._known.append(self._known[-1] + is_known)
        limit = max([_limit(self._settings.for_tool(one.full_name).settings) for one in calls])
        known = self._known[-1] - self._known[max(0, len(self._rounds) - 2 * limit)]
        failed = [self._failed_again(one) for one in again if one.failed]
        most = max(map(len, failed), default=0)
        if is_known and known > limit:
            return Evidence(known, self._newest(known))
        if most + 1 < limit:
            return None
        by_round = chain.from_iterable([one for one in failed if len(one) == most])
        newest_first = sorted(by_round, key=itemgetter(0), reverse=True)
        return Evidence(most + 1, tuple([one for _, one in newest_first[:NAMED]]))

    def _failed_again(self, call: PastCall) -> Sequence[tuple[int, PastCall]]:
        """Add a call that failed again; return the equal calls of the last `WITHIN` rounds that failed again with its
        error, each with the number of its round."""
        outcome, at = call.outcome, len(self._rounds)
        failed = self._failures.setdefault((call.signature, outcome.digest if outcome else b""), deque())
        failed.append((at, call))
        while failed[0][0] <= at - WITHIN:
            failed.popleft()
        return failed

    def _newest(self, count: int) -> tuple[PastCall, ...]:
        """Return the calls of the `count` newest known rounds, newest first."""
        all_ = range(len(self._rounds) - 1, -1, -1)
        known = islice((at for at in all_ if self._known[at + 1] > self._known[at]), min(count, NAMED))
        return tuple([one for at in known for one in self._rounds[at][::-1]][:NAMED])


class _Pairs:
    """Calls with their outcomes; outcomes are read only when an equal call comes.

    `begin` starts a new part; the methods with `lately` only count pairs of the newest part.
    """

    def __init__(self) -> None:
        self._line = 0
        self._latest: dict[Signature, int] = {}
        self._unread: dict[Signature, list[tuple[PastCall, int]]] = {}
        self._lines: dict[tuple[Signature, bytes], int] = {}

    def begin(self) -> None:
        """Start a new part."""
        self._line += 1

    def add(self, call: PastCall) -> None:
        """Add a call with its outcome."""
        self._latest[call.signature] = self._line
        self._unread.setdefault(call.signature, []).append((call, self._line))

    def has(self, call: PastCall) -> bool:
        """Whether an equal call came before."""
        return call.signature in self._latest

    def has_lately(self, call: PastCall) -> bool:
        """Whether an equal call came in the newest part."""
        return self._latest.get(call.signature) == self._line

    def knows(self, call: PastCall) -> bool:
        """Whether an equal call returned the same outcome."""
        return self._line_of(call) is not None

    def knows_lately(self, call: PastCall) -> bool:
        """Whether an equal call returned the same outcome in the newest part."""
        return self.has_lately(call) and self._line_of(call) == self._line

    def _line_of(self, call: PastCall) -> int | None:
        for earlier, line in self._unread.pop(call.signature, ()):
            if brought := earlier.brought:
                self._lines[brought] = line
        return self._lines.get(call.brought) if call.brought else None
