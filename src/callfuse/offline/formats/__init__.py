"""Define the formats of recorded runs, one file each, and find the format of a record.

A reader takes a record, parsed and as text, and yields runs, or conversations (the history in one request).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from callfuse.offline.formats import litellm, messages, opentelemetry, trajectories
from callfuse.offline.runs import BadRecord, RecordedConversation, RecordedRun

__all__ = ["FORMATS", "RecordFormat", "format_of"]


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One format. `accepts`: whether a record has this format; `read`: reads such a record.

    `read` raises BadRecord for an unreadable record, and yields a BadRecord for each bad part of a partly readable one.
    """

    name: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any, bytes], Iterator[RecordedRun | RecordedConversation | BadRecord]]


FORMATS: tuple[RecordFormat, ...] = (
    RecordFormat("calls", trajectories.accepts, trajectories.read),
    RecordFormat("opentelemetry", opentelemetry.accepts, opentelemetry.read),
    RecordFormat("litellm", litellm.accepts, litellm.read),
    RecordFormat("messages", messages.accepts, messages.read),
)
"""The first format that accepts a record reads it."""


def format_of(record: object) -> RecordFormat | None:
    """Find the format of a record; None if no format accepts it."""
    return next((format_ for format_ in FORMATS if format_.accepts(record)), None)
