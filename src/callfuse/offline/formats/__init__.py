"""One file a format of recorded runs; the table that finds a record's by what it holds.

A record, parsed and as text, enters; runs leave, or conversations as far as one request shows them.
"""

from callfuse.offline.formats import litellm, messages, opentelemetry, trajectories
from callfuse.offline.formats.format import Format

FORMATS: tuple[Format, ...] = (
    Format("calls", trajectories.accepts, trajectories.read),
    Format("opentelemetry", opentelemetry.accepts, opentelemetry.read),
    Format("litellm", litellm.accepts, litellm.read),
    Format("messages", messages.accepts, messages.read),
)
"""The first that accepts a record reads it."""

__all__ = ["FORMATS", "Format", "format_of"]


def format_of(record: object) -> Format | None:
    """The format of a record; None where it is of none."""
    return next((format_ for format_ in FORMATS if format_.accepts(record)), None)
