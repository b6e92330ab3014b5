"""Count events while a command runs, for the report at its end and its exit code. A sink of events."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeVar

from callfuse.asgi.fuse import ACTION
from callfuse.asgi.prepare import NO_TOOLS
from callfuse.cli.diagnosis import counted
from callfuse.observe.counted import rates_of
from callfuse.observe.events import (
    NOWHERE,
    Event,
    ExchangeEnded,
    FailedOpen,
    FindingSeen,
    LoopBegan,
    NotGuarded,
    TokensSpent,
)
from callfuse.observe.fields import text
from callfuse.observe.saved import Saved, amounts_of
from callfuse.policy.rungs import Rung

ENDINGS: Final = frozenset({str(Rung.BLOCK), ACTION.decode()})
"""Actions after which an agent gets no call to run."""
MOST_SHOWN: Final = 20
"""The most findings and sessions that are named; the others are only counted."""
MOST_KEPT: Final = 5000
"""The most findings and sessions that are kept, the newest ones, because a command may run forever."""
IN_VAIN: Final = frozenset({NO_TOOLS})
"""Causes of unguarded exchanges that are not reported, because there was nothing to guard."""


K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class ToolFindings:
    """The findings of one tool in one session: the highest count, its limit, and the rungs in order."""

    count: int
    limit: int
    actions: list[str]


class Account:
    """Counts exchanges, findings and calls, and remembers how each session has ended."""

    kinds: Final = frozenset({ExchangeEnded, FindingSeen, LoopBegan, FailedOpen, NotGuarded, TokensSpent})

    def __init__(self) -> None:
        self.guarded = 0
        self.calls = 0
        self.withheld = 0
        self.loops = 0
        self.findings = 0
        self.passed: Counter[str] = Counter()
        """Unguarded exchanges that could have been guarded, by cause, and causes of failing open."""
        self.found: dict[tuple[str, str, str], ToolFindings] = {}
        """Findings by session, kind and tool."""
        self._any = False
        self._last: dict[str, str] = {}
        self._saved = Saved()
        self._amounts: defaultdict[str, float] = defaultdict(float)
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Count an event."""
        with self._lock:
            match event:
                case ExchangeEnded():
                    self._take_exchange(event)
                case FindingSeen():
                    self._take_finding(event)
                case TokensSpent():
                    for name, amount in rates_of(event).items():
                        self._spent[name] += amount
                case LoopBegan():
                    self.loops += 1
                case FailedOpen():
                    self.passed[text(event.kind)] += 1
                case NotGuarded() if event.where == NOWHERE:  # no other event reports this exchange
                    self._any = True
                    self.passed[text(event.cause)] += 1
                case _:
                    pass

    def _take_exchange(self, event: ExchangeEnded) -> None:
        self._any = True
        if event.guarded:
            self.guarded += 1
            self.calls += event.calls
            self._last.pop(event.where.session, None)
            _put(self._last, event.where.session, event.action)
        elif event.cause not in IN_VAIN:
            self.passed[text(event.cause)] += 1

    def _take_finding(self, event: FindingSeen) -> None:
        found = event.verdict.finding
        if event.verdict.withholds and not event.again:
            self.withheld += 1
        for name, amount in amounts_of(event, self._saved.by(event)).items():
            self._amounts[name] += amount
        key = event.where.session, str(found.kind), event.verdict.call.full_name
        self.findings += not event.again
        loop = self.found.get(key) or _put(self.found, key, ToolFindings(0, found.threshold, []))
        loop.count = max(loop.count, found.count)
        if event.action not in loop.actions:
            loop.actions.append(event.action)

    def _in_words(self) -> str:
        """Return the savings in words."""
        calls = counted(max(round(self._amounts["saved_calls"]), self.withheld), "call")
        tokens, cost = counted(int(self._amounts["saved_tokens"]), "token"), self._amounts["saved_cost"]
        return f"{calls}, {tokens} and a cost of {cost:,.4f}" if cost else f"{calls} and {tokens}"

    @property
    def ended(self) -> list[str]:
        """The sessions whose last exchange was a block, so that the block has ended their run."""
        return [session for session, action in self._last.items() if action in ENDINGS]

    @property
    def is_empty(self) -> bool:
        """Whether there was no exchange."""
        return not self._any

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report at the end."""
        sessions = counted(len(self._last), "session")
        done = f"{counted(self.guarded, 'exchange')} of {sessions} guarded, {counted(self.calls, 'call')}"
        if not self.findings:
            yield f"{done}: no loop found"
        else:
            yield (
                f"{done}: {counted(self.loops, 'loop')} found ({counted(self.findings, 'finding')}),"
                f" {counted(self.withheld, 'call')} withheld, about {self._in_words()} saved (estimate)"
            )
        for (session, kind, tool), loop in list(self.found.items())[:MOST_SHOWN]:
            what = f"{kind} of {text(tool)}, {loop.count} with a limit of {loop.limit}: {', then '.join(loop.actions)}"
            yield f"  {what} (session {text(session)})"
        if len(self.found) > MOST_SHOWN:
            yield f"  and {len(self.found) - MOST_SHOWN} more"
        for cause, count in self.passed.most_common(MOST_SHOWN):
            yield f"  not guarded: {counted(count, 'time')}, {cause}"
        if tokens := self._spent["tokens"]:
            estimated, cost = self._spent["estimated_tokens"], self._spent["cost"]
            parts = [f"{counted(int(tokens), 'token')} spent"]
            parts += [f"{int(estimated):,} of them estimated"] if estimated else []
            parts += [f"cost {cost:,.4f}"] if cost else []
            yield ", ".join(parts)
        if ended := self.ended:
            names = ", ".join(text(one) for one in ended[:MOST_SHOWN])
            yield f"a block ended the run of {counted(len(ended), 'session')}: {names}"


def _put(kept: dict[K, V], key: K, value: V) -> V:
    """Store a value and return it. Beyond the limit, the oldest value is dropped."""
    kept[key] = value
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
    return value
