"""Write one line for each exchange: the client, the model, whether callfuse read it, what it found, how long it took.

The lines go to the logger `callfuse.access` at INFO, and only if that logger has a level of its own: `callfuse serve`
sets one, and a host does so with `logging.getLogger("callfuse.access").setLevel("INFO")`. An INFO level of the root
logger alone does not enable them, because a host has its own access lines.
"""

import logging
from typing import Final

from callfuse.observe.events import Event, ExchangeEnded
from callfuse.observe.fields import text
from callfuse.observe.log import short_lane, write
from callfuse.observe.printable import plain

ACCESS: Final = "callfuse.access"
"""The name of the logger."""
logger: Final = logging.getLogger(ACCESS)

_LINE: Final = "%s %s, model=%s, session=%s, %s%s, calls=%d, action=%s, %d ms"
_LANE: Final = "lane=%s, "
_HELD: Final = ", held %d ms"


class AccessSink:
    """Writes the access line of each exchange (`observe/bus.py`)."""

    kinds: Final = frozenset({ExchangeEnded})

    def take(self, event: Event) -> None:
        """Write the line of an exchange that has ended."""
        if isinstance(event, ExchangeEnded) and logger.level and logger.isEnabledFor(logging.INFO):
            access(event)


def access(event: ExchangeEnded) -> None:
    """Log an exchange. `-` stands for a value that is not known."""
    where = event.where
    model, short = text(where.model) or "-", short_lane(where.session, where.lane)
    lane = _LANE % short if short else ""
    status, action = event.status or "-", event.action or "-"
    guard, ms, held_ms = _guard(event), round(1000 * event.seconds), round(1000 * event.held_seconds)
    line = _LINE
    args: tuple[object, ...] = (where.dialect, status, model, where.session, lane, guard, event.calls, action, ms)
    if event.held_seconds:
        line, args = line + _HELD, (*args, held_ms)
    fields: dict[str, object] = {
        "session_id": where.session,
        "session_source": where.source,
        "lane": where.lane or "-",
        "backend": where.backend,
        "model": model,
        "dialect": where.dialect,
        "action": action,
        "status": status,
        "guard": guard,
        "mode": event.mode,
        "cause": plain(event.cause),
        "ending": event.ending,
        "calls": event.calls,
        "ms": ms,
        "held_ms": held_ms,
        "asked_ms": round(1000 * event.asked_seconds),
        "before_ms": round(10_000 * event.before_seconds) / 10,
        "first_byte_ms": round(1000 * event.first_byte_seconds),
        "route": event.route,
    }
    write(logger, logging.INFO, line, args, fields)


def _guard(event: ExchangeEnded) -> str:
    """Return what callfuse did, or why it did nothing, and how the exchange ended unless it was complete."""
    if event.guarded and event.ending == "complete":
        return event.mode
    wanted = "guarded" if event.mode == "passed" else event.mode
    said = event.mode if event.guarded else plain(f"not {wanted}: {event.cause}")
    return said if event.ending == "complete" else f"{said}, {event.ending}"
