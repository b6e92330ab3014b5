"""A sink that keeps the events of a middleware or detector."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from callfuse import CallFuseMiddleware
from callfuse.asgi.review import OnLoop
from callfuse.observe.events import Event
from tests.support.asgi import App
from tests.support.config import settings

E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class Observed:
    """The events in the order in which they came. `on_event` is called with each."""

    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], None] = lambda _: None

    def take(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self.on_event(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of a kind."""
        (event,) = self.of(kind)
        return event

    def names(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.name for event in self.events]


def observed(
    app: App, ladder: str = "block", *, on_loop: OnLoop | None = None, **more: Any
) -> tuple[CallFuseMiddleware, Observed]:
    """The app behind a guard, and what happens there."""
    guarded = CallFuseMiddleware(app, settings(ladder, **more), on_loop=on_loop)
    seen = Observed()
    guarded.bus.add(seen)
    return guarded, seen
