"""Write one line for each exchange: who asked which model, whether callfuse looked, what it found, how long it took.

The lines go to the logger `callfuse.access` at INFO, and only where that logger has been given a level of its own:
`callfuse serve` does so, and a host does it with `logging.getLogger("callfuse.access").setLevel("INFO")`. An INFO level
of the root logger alone switches nothing on, for a host has access lines already.
"""

import logging
from typing import Final

from callfuse.observe.events import Event, ExchangeEnded
from callfuse.observe.fields import text
from callfuse.observe.log import write
from callfuse.observe.printable import plain

ACCESS: Final = "callfuse.access"
"""The name of the logger."""
logger: Final = logging.getLogger(ACCESS)

_LINE: Final = (
    "%(dialect)s %(status)s, model=%(model)s, session=%(session_id)s, lane=%(lane)s, %(guard)s, calls=%(calls)d, "
    "action=%(action)s, %(ms)d ms"
)
_HELD: Final = ", held %(held_ms)d ms"


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
    fields: dict[str, object] = {
        "session_id": where.session,
        "session_source": where.source,
        "lane": where.lane or "-",
        "backend": where.backend,
        "model": text(where.model) or "-",
        "dialect": where.dialect,
        "action": event.action or "-",
        "status": event.status or "-",
        "guard": _guard(event),
        "mode": event.mode,
        "cause": plain(event.cause),
        "ending": event.ending,
        "calls": event.calls,
        "ms": round(1000 * event.seconds),
        "held_ms": round(1000 * event.held_seconds),
        "asked_ms": round(1000 * event.asked_seconds),
        "before_ms": round(1000 * event.before_seconds, 1),
        "first_byte_ms": round(1000 * event.first_byte_seconds),
        "route": event.route,
    }
    line = _LINE + (_HELD if event.held_seconds else "")
    write(logger, logging.INFO, line, fields)


def _guard(event: ExchangeEnded) -> str:
    """What callfuse did, or why it did nothing, and how the exchange ended if not well."""
    if event.guarded and event.ending == "complete":
        return event.mode
    wanted = "guarded" if event.mode == "passed" else event.mode
    said = event.mode if event.guarded else plain(f"not {wanted}: {event.cause}")
    return said if event.ending == "complete" else f"{said}, {event.ending}"
