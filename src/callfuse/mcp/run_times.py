"""Record when the calls of one caller have run, and in which of its POSTs. Does no IO; the clock is an argument."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from callfuse.model.signature import Signature

CALLS_KEPT: Final = 256
"""The most calls whose last run is remembered."""
RUNS_KEPT: Final = 64
"""The most runs of one call whose POST is remembered."""


@dataclass(slots=True)
class _Runs:
    """The numbers of the POSTs in which a call ran, and the time of its last run."""

    posts: deque[int]
    last: float = 0.0


class RunTimes:
    """The runs of one caller. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self._runs: OrderedDict[Signature, _Runs] = OrderedDict()
        self._posts = self._began = 0

    def __len__(self) -> int:
        """Return the number of remembered calls."""
        return len(self._runs)

    def begin(self, ttl_s: float) -> bool:
        """Begin a POST. Returns whether no call has run for longer than `ttl_s`, so that everything is forgotten."""
        self._posts += 1
        begins_anew = self._clock() - self._last > ttl_s
        if begins_anew:
            self._began = self._posts
        return begins_anew

    def note(self, signature: Signature, *, counts: bool) -> None:
        """Note that a call runs now. `counts`: it counts as a run of this POST."""
        runs = self._runs.setdefault(signature, _Runs(deque(maxlen=RUNS_KEPT)))
        runs.last = self._last = self._clock()
        if counts:
            runs.posts.append(self._posts)
        self._runs.move_to_end(signature)
        if len(self._runs) > CALLS_KEPT:
            self._runs.popitem(last=False)

    def age(self, signature: Signature) -> float:
        """Return the seconds since a call last ran; 0 if that is unknown."""
        runs = self._runs.get(signature)
        return 0.0 if runs is None else self._clock() - runs.last

    def count(self, signature: Signature, last: int) -> int:
        """Return in how many POSTs a call has run, of this one and the `last` ones before it, since everything was
        forgotten."""
        runs = self._runs.get(signature)
        since = max(self._began, self._posts - last)
        return 0 if runs is None else sum(at >= since for at in runs.posts)
