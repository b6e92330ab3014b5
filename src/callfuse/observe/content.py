"""Choose what is shown of calls, by the setting `admin.content`: nothing, names, the beginning, or most of it.

    shown(event, "short")  # fields_of(event), with "gen_ai.tool.call.arguments": '{"query": "weather"}'

Whatever is shown is bounded and printable, and known shapes of secrets are starred.
"""

from typing import Final

from callfuse.model import ToolCall
from callfuse.model.secrets import star_secrets
from callfuse.observe.events import CallSeen, Event, FindingSeen
from callfuse.observe.fields import ARGUMENTS, CALL_ID, RESULT, TOOL, Value, fields_of
from callfuse.observe.printable import printable

LENGTHS: Final = {"short": 200, "full": 4000}
"""Characters of arguments, and of a result, by the setting's value; others show neither."""
NAMES: Final = (TOOL, CALL_ID)
"""What the value `none` leaves out."""


def shown(event: Event, content: str) -> dict[str, Value]:
    """The fields of an event with what may be shown of its call: `content` is the value of the setting."""
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
            fields[RESULT] = _shorten(event.verdict.finding.previous, length)
    return fields


def _arguments(call: ToolCall, length: int) -> str:
    return _shorten(call.text, length)


def _shorten(text: str, length: int) -> str:
    return printable(star_secrets(text, length))
