"""Choose what is shown of calls, by the setting `admin.content`: nothing, names, the beginning, or most of it.

    shown(event, "short")  # fields_of(event), with "gen_ai.tool.call.arguments": '{"query": "weather"}', ...

Everything shown is bounded and printable, and secrets of known forms are masked. `callfuse.cut` names cut texts.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from callfuse.model import ToolCall
from callfuse.model.secrets import MARGIN, star_secrets
from callfuse.observe.events import ActionTaken, CallSeen, Event, FindingSeen, ResultSeen
from callfuse.observe.fields import (
    ARGUMENTS,
    CALL_ID,
    CUT,
    DESCRIPTION,
    LONGEST,
    MOST,
    PATTERN,
    RESTS_ON,
    RESULT,
    STEP,
    SUGGESTION,
    TOLD,
    TOOL,
    Value,
    fields_of,
    text,
)
from callfuse.observe.printable import printable
from callfuse.policy.ladder import Verdict

LENGTHS: Final[Mapping[str, int]] = {"none": 0, "names": 0, "short": 200, "full": 4000}
"""Characters of each text that quotes arguments or results, by the setting's value."""
LONGEST_TOLD: Final = 1000
"""Characters of a text for the model, if arguments and results are shown: it quotes a few hundred of theirs."""
QUOTING: Final = (ARGUMENTS, RESULT, TOLD)
"""The fields that quote arguments or results."""
NAMING: Final = (TOOL, CALL_ID, PATTERN, RESTS_ON, DESCRIPTION)
"""The fields that the value `none` leaves out."""


def length_of(name: str, content: str) -> int:
    """Return how many characters of a field's text are shown; 0 for none."""
    if name == DESCRIPTION:
        return LONGEST
    length = LENGTHS.get(content, 0)
    return length and (max(length, LONGEST_TOLD) if name == TOLD else length)


def shown(event: Event, content: str) -> dict[str, Value]:
    """Return the fields of an event, with as much of its call as the setting's value `content` permits."""
    return finished(collected(event, content), content)


def collected(event: Event, content: str) -> dict[str, Value]:
    """Return the same, but with quoted texts only cut. Masking secrets takes as long as all the rest, so `finished`
    does it when the event is read."""
    fields = fields_of(event)
    if isinstance(event, FindingSeen):
        fields |= _of_finding(event.verdict)
    if content == "none":
        for name in NAMING:
            fields.pop(name, None)
    cut = []
    for name, quoted in _quoted(event) if LENGTHS.get(content) else ():
        if quoted:
            length = length_of(name, content)
            fields[name] = quoted[: length + MARGIN]
            if len(quoted) > length:
                cut.append(name)
    if cut:
        fields[CUT] = tuple(cut)
    return fields


def finished(fields: dict[str, Value], content: str) -> dict[str, Value]:
    """Mask secrets in the fields that `collected` returned, and make them printable."""
    for name in (*QUOTING, DESCRIPTION):
        if name in fields:
            fields = {**fields, name: finish(str(fields[name]), length_of(name, content))}
    return fields


def finish(quoted: str, length: int) -> str:
    """Mask secrets in a text that `collected` has cut, and make it printable."""
    return printable(star_secrets(quoted, length))


def _of_finding(verdict: Verdict) -> dict[str, Value]:
    """Return the evidence and the texts of a finding, beyond the fields that every event has."""
    found = verdict.finding
    fields: dict[str, Value] = {
        DESCRIPTION: verdict.description[: LONGEST + MARGIN],
        SUGGESTION: verdict.suggestion,
        STEP: verdict.step,
    }
    if found.calls:
        fields[RESTS_ON] = tuple([text(id_) for id_ in found.calls[-MOST:]])
    return fields


def _quoted(event: Event) -> Iterator[tuple[str, str | None]]:
    """Yield the texts of an event that quote arguments or results, by the names of their fields."""
    if isinstance(event, CallSeen):
        yield ARGUMENTS, _arguments(event.call)
    elif isinstance(event, FindingSeen):
        yield ARGUMENTS, _arguments(event.verdict.call)
        yield RESULT, event.verdict.finding.previous
    elif isinstance(event, ActionTaken):
        yield TOLD, event.told
    elif isinstance(event, ResultSeen):
        yield RESULT, event.outcome.text


def _arguments(call: ToolCall) -> str:
    return call.text if call.has_arguments else ""
