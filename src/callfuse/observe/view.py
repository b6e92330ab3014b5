"""Update the activity for the live page: that of this process, or of all processes that share a store.

    view = View(feed, counts)
    activity = await view.look()     # for each request of a page

Without a store, the events of this process wait until somebody opens the page; only counts are updated at once. With a
store, the activity is built from the last events of all processes when somebody opens the page. The feed then updates
it while the page is open, and for a while after. Each process shows the same activity, with the same name and ids,
because all get the same events. While the store is down, each process shows its own activity.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from anyio import to_thread

from callfuse.observe.activity import Activity, Content
from callfuse.observe.counts import Counts
from callfuse.observe.feed import Feed
from callfuse.observe.reading import read_fields
from callfuse.observe.ring import Choice, FeedEvent, number_of

LOOKS_S: Final = 30.0
"""How long an activity is updated after the page was last read."""
MOST_WAITING: Final = 20_000
"""The most events that wait for the next look; if there are more, the activity is rebuilt then."""
NOBODY: Final = "nobody yet"
"""The name of an activity without events."""


class View:
    """The activity of a feed. `counts`: those of this process. `content`: the setting of the feed. `clock`: Unix
    seconds; `passed`: seconds from any start. `alone`: the store is down, so events of other processes are missing."""

    def __init__(
        self,
        feed: Feed,
        counts: Counts,
        content: Content = "short",
        clock: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self.alone = False
        self._feed = feed
        self._content: Content = content
        self._clock = clock
        self._passed = passed
        self._looked = passed()
        self._looking = asyncio.Lock()
        self._taking = Lock()
        self._is_stale = False
        self._waiting: deque[FeedEvent] = deque()
        self._activity = Activity(content, clock, rates=None if feed.is_shared else counts.rates)
        if not feed.is_shared:
            feed.take_unseen()

    async def look(self, server: str = "", since: int = 0) -> Activity:
        """Return the activity, up to date. `server`, `since`: the name and version that the caller has, perhaps from
        another process, which may have read more."""
        if not self._feed.is_shared:
            await to_thread.run_sync(self._take_own)  # under any event loop
            return self._activity
        async with self._looking:
            self._looked = self._passed()
            await self._feed.follow(self)
            if server == self._activity.server and since > self._known():
                await self._feed.refresh()
            activity = self._activity
            await asyncio.to_thread(_take, activity, self._waiting)
            return activity

    def _take_own(self) -> None:
        """Take the events of this process since the last look. Slow for thousands of events."""
        with self._taking:  # so that two threads take events in order
            for kept in self._feed.take_unseen():
                self._activity.take_fields(kept.unfinished(), number_of(kept.id))

    def _known(self) -> int:
        """Return the number of the last event that is known."""
        return number_of(self._waiting[-1].id) if self._waiting else self._activity.version

    # As a follower of the feed.

    @property
    def ended(self) -> bool:
        """Whether the page has not been read for a while, or the activity must be rebuilt."""
        is_left = self._passed() - self._looked > LOOKS_S
        return is_left or self._is_stale or len(self._waiting) > MOST_WAITING

    def begin(self, old: Sequence[FeedEvent], *, alone: bool) -> None:
        """Start a new activity with these events."""
        self.alone, self._is_stale = alone, False
        self._waiting = deque(old)
        self._activity = Activity(self._content, self._clock, None if alone else NOBODY)

    def hand(self, new: Sequence[FeedEvent], _: dict[Choice, bytes]) -> None:
        """Keep new events until somebody looks."""
        self._waiting.extend(new)

    def tell(self, *, alone: bool) -> None:
        """Handle the store going down or coming up again: the activity must be rebuilt."""
        self.alone, self._is_stale = alone, True

    def end(self) -> None:
        """Stop keeping events."""
        self._waiting = deque()
        self._activity = Activity(self._content, self._clock, NOBODY)


def _take(activity: Activity, waiting: deque[FeedEvent]) -> None:
    """Take the waiting events. Slow for thousands of events."""
    while waiting:
        entry = waiting.popleft()
        if activity.server == NOBODY:
            activity.server = f"shared-{number_of(entry.id)}"
        activity.take_fields(read_fields(entry.data), number_of(entry.id), is_finished=True)
