"""What a format of recorded runs is, and what its readers give."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from callfuse.config.wording import shown
from callfuse.dialects.base import Request
from callfuse.model import ToolCall
from callfuse.offline.run import BadRecord, Run


@dataclass(frozen=True, slots=True)
class Label:
    """What a record says of its run beside the calls; empty where it says nothing.

    `id` is how reports call the run. `session` names the conversation where several records may be of one.
    """

    id: str = ""
    session: str = ""
    source: str = ""
    model: str = ""
    success: bool | None = None


class Conversation(NamedTuple):
    """A conversation as one request shows it, with the calls of the answer where that is known."""

    label: Label
    request: Request
    answer: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One format: whether a record is of it, and what stands in such a record.

    `read` raises BadRecord, or gives it in place of a part of a record whose other parts are good.
    """

    name: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any, bytes], Iterator[Run | Conversation | BadRecord]]


def label_of(record: dict[str, Any]) -> Label:
    """The label of a record whose keys are ours; raises BadRecord."""
    id_ = text_at(record, "id")
    success = record.get("success")
    if success in (0, 1) and not isinstance(success, bool):
        success = bool(success)
    if not isinstance(success, bool | None):
        raise BadRecord(f"success = {shown(success)}: use true, false or null")
    # An id beside a verdict is a run's; an id alone may be a request's, of which a conversation has many.
    session = text_at(record, "session_id") or text_at(record, "conversation_id")
    session = session or (id_ if success is not None else "")
    return Label(id_ or session, session, text_at(record, "source"), text_at(record, "model"), success)


def text_at(record: dict[str, Any], key: str) -> str:
    """The text under a key, empty where there is none; a number is taken as text."""
    value = record.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str | None):
        raise BadRecord(f"{key} = {shown(value)}: use a text")
    return value or ""
