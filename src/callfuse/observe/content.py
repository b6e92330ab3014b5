"""Choose what is shown of calls, by the setting `admin.content`: nothing, names, the beginning, or most of it.

    shown(event, "short")  # fields_of(event), with "gen_ai.tool.call.arguments": '{"query": "weather"}'

Whatever is shown is bounded and printable, and known shapes of secrets are starred.
"""

from typing import Final

from callfuse.model import ToolCall
from callfuse.model.secrets import MARGIN, star_secrets
from callfuse.observe.events import CallSeen, Event, FindingSeen
from callfuse.observe.fields import ARGUMENTS, CALL_ID, RESULT, TOOL, Value, fields_of
from callfuse.observe.printable import printable

LENGTHS: Final = {"short": 200, "full": 4000}
"""Characters of arguments, and of a result, by the setting's value; others show neither."""
NAMES: Final = (TOOL, CALL_ID)
"""What the value `none` leaves out."""


def shown(event: Event, content: str) -> dict[str, Value]:
    """The fields of an event with what may be shown of its call: `content` is the value of the setting."""
    return finished(collected(event, content), content)


def collected(event: Event, content: str) -> dict[str, Value]:
    """The same, but arguments and result are cut only: to look for secrets takes as long as all else, and is left to
    `finished`, for whoever reads the event."""
    fields = fields_of(event)
    if content == "none":
        for name in NAMES:
            fields.pop(name, None)
    length = LENGTHS.get(content)
    if length is None:
        return fields
    if isinstance(event, CallSeen):
        fields[ARGUMENTS] = _arguments(event.call, length)
    elif isinstance(event, FindingSeen):
        fields[ARGUMENTS] = _arguments(event.verdict.call, length)
        if event.verdict.finding.previous:
            fields[RESULT] = event.verdict.finding.previous[: length + MARGIN]
    return fields


def finished(fields: dict[str, Value], content: str) -> dict[str, Value]:
    """What `collected` has, as it may be shown."""
    length = LENGTHS.get(content, 0)
    for name in (ARGUMENTS, RESULT):
        if name in fields:
            fields = {**fields, name: printable(star_secrets(str(fields[name]), length))}
    return fields


def _arguments(call: ToolCall, length: int) -> str:
    return call.text[: length + MARGIN]
