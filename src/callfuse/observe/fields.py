"""Name the fields of events for JSON log lines, traces, the feed and webhooks.

Names are those of OpenTelemetry's GenAI conventions where they exist, else `callfuse.*`. All names are defined here,
because the conventions are in development.

    fields_of(event)  # {"callfuse.event": "hold", "gen_ai.conversation.id": "abc", ..., "callfuse.seconds": 0.4}

Texts are shown as in log lines: bounded, printable, secrets masked. Arguments and results of calls are never included.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from callfuse.memo import remembered
from callfuse.model import Finding, ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.outcomes import Outcome
from callfuse.model.secrets import MARGIN, star_secrets
from callfuse.observe.events import Event, FailedOpen, Where, action_of
from callfuse.observe.pages import page_of
from callfuse.observe.printable import plain
from callfuse.policy.ladder import Verdict

Value = str | int | float | bool | tuple[str, ...]
"""The values of fields."""

LONGEST: Final = 200
"""Characters of a text."""
MOST: Final = 20
"""Texts of a list."""
KEPT: Final = 1000
"""The most texts, and places of exchanges, that are cached in their shown form: searching a model's name for secrets
takes 5 us, and few different names occur."""

LONGEST_WHERE: Final = 1000
"""Characters of all names of a place; ids are kept shorter than that."""

_NUMBERS: Final = frozenset({bool, int, float})
_UNKNOWN: Final = ("", "-", ())
_OWN_ID: Final = re.compile("[0-9a-f]{16}")
"""The id of a finding. It is not cached, because each is new. No known secret has this form."""

SESSION: Final = "gen_ai.conversation.id"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
TOOL: Final = "gen_ai.tool.name"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
TOOL_TYPE: Final = "gen_ai.tool.type"
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
CHAT: Final = "chat"
GENERATE: Final = "generate_content"
FUNCTION: Final = "function"
STATUS: Final = "http.response.status_code"
EVENT: Final = "callfuse.event"
DIALECT: Final = "callfuse.dialect"
SOURCE: Final = "callfuse.session.source"
LANE: Final = "callfuse.lane"
FINDING_ID: Final = "callfuse.finding.id"
KIND: Final = "callfuse.finding.kind"
KINDS: Final = "callfuse.finding.kinds"
URL: Final = "callfuse.finding.url"
COUNT: Final = "callfuse.finding.count"
THRESHOLD: Final = "callfuse.finding.threshold"
WINDOW: Final = "callfuse.finding.window_seconds"
HARD: Final = "callfuse.finding.hard"
CONFIDENCE: Final = "callfuse.finding.confidence"
PATTERN: Final = "callfuse.finding.pattern"
REPETITIONS: Final = "callfuse.finding.repetitions"
RESTS_ON: Final = "callfuse.finding.calls"
DESCRIPTION: Final = "callfuse.finding.description"
SUGGESTION: Final = "callfuse.finding.suggestion"
STEP: Final = "callfuse.finding.step"
SAVED_CALLS: Final = "callfuse.saved_calls"
SAVED_TOKENS: Final = "callfuse.saved_tokens"
SAVED_COST: Final = "callfuse.saved_cost"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_TYPE: Final = "gen_ai.token.type"
USAGE_SOURCE: Final = "callfuse.token.source"
ESTIMATED_TOKENS: Final = "callfuse.estimated_tokens"
REQUEST_TOKENS: Final = "callfuse.request_tokens"
REQUEST_COST: Final = "callfuse.request_cost"
COST: Final = "callfuse.cost"
SIGNATURE: Final = "callfuse.signature"
ACTION: Final = "callfuse.action"
FIRST: Final = "callfuse.first"
BLOCKS: Final = "callfuse.blocks"
AGAIN: Final = "callfuse.again"
ARM: Final = "callfuse.arm"
WOULD: Final = "callfuse.would"
CALL_OUTCOME: Final = "callfuse.call.outcome"
SECONDS: Final = "callfuse.seconds"
HELD: Final = "callfuse.held_seconds"
ROUTE: Final = "callfuse.route"
PART: Final = "callfuse.part"
CAUSE: Final = "callfuse.cause"
OUTCOME: Final = "callfuse.outcome"
VERDICT: Final = "callfuse.verdict"
LIMIT: Final = "callfuse.limit"
MENDED: Final = "callfuse.result"
STORE_OPERATION: Final = "callfuse.operation"
FEEDBACK: Final = "callfuse.kind"
HOW: Final = "callfuse.how"
TOLD: Final = "callfuse.told"
SESSIONS: Final = "callfuse.sessions"
WHAT: Final = "callfuse.what"
IS_OFF: Final = "callfuse.is_off"
BY: Final = "callfuse.by"
CUT: Final = "callfuse.cut"
TIME: Final = "time"

_OF_EVENT: Final = {
    "session": SESSION,
    "status": STATUS,
    "finding_id": FINDING_ID,
    "call_id": CALL_ID,
    "outcome": CALL_OUTCOME,
    "rung": ACTION,
    "found": KIND,
    "tool": TOOL,
    "arm": ARM,
    "tokens": REQUEST_TOKENS,
    "price": REQUEST_COST,
    "input_tokens": INPUT_TOKENS,
    "cached_tokens": CACHED_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "cause": CAUSE,
    "error": "error.type",
}
"""The names of an event's own values, unless they are `callfuse.` and the value's name."""
OF_SAVED: Final = {"saved_calls": SAVED_CALLS, "saved_tokens": SAVED_TOKENS, "saved_cost": SAVED_COST}
"""The fields of a finding's savings, by the names of the rates."""
_LEFT_OUT: Final = frozenset({"told"})
"""Values of events that quote arguments and results."""
OF_LOG: Final[Mapping[str, str]] = {
    "session_id": SESSION,
    "session_source": SOURCE,
    "lane": LANE,
    "backend": PROVIDER,
    "model": MODEL,
    "dialect": DIALECT,
    "tool": TOOL,
    "finding_id": FINDING_ID,
    "kind": KIND,
    "count": COUNT,
    "max_repeats": THRESHOLD,
    "hard": HARD,
    "confidence": CONFIDENCE,
    "action": ACTION,
    "blocks": BLOCKS,
    "arm": ARM,
    "would": WOULD,
    "feedback": FEEDBACK,
    "status": STATUS,
    "mode": "callfuse.mode",
    "cause": CAUSE,
    "ending": "callfuse.ending",
    "calls": "callfuse.calls",
    "ms": "callfuse.ms",
    "held_ms": "callfuse.held_ms",
    "asked_ms": "callfuse.asked_ms",
    "before_ms": "callfuse.before_ms",
    "first_byte_ms": "callfuse.first_byte_ms",
    "route": ROUTE,
    "signature": "callfuse.call",
    "url": URL,
}
"""The fields of the values in a log record's `extra`, in order. `callfuse.call`: the beginning of tool and arguments,
as in the line."""


def fields_of(event: Event) -> dict[str, Value]:
    """Return the fields of an event by name, without empty and unknown ones."""
    found: dict[str, Value] = {EVENT: event.name}
    for attribute, name in _names.get(type(event)) or _note_names(type(event)):
        value = getattr(event, attribute)
        kind = type(value)
        if kind in _NUMBERS:
            found[name] = value
        elif kind is str:
            if value not in _UNKNOWN:
                found[name] = value if _OWN_ID.fullmatch(value) else _TEXTS.get(attribute, text)(value)
        elif kind is Where:
            found |= _of_where(*value)
        elif kind is ToolCall:
            found |= _known(of_call(value))
        elif isinstance(value, Verdict):
            found |= _known(_of_verdict(value))
        elif attribute == "sessions":
            found[SESSIONS] = tuple(map(plain, value[:MOST]))
        else:
            found |= _known({name: _shown(value)})
    if isinstance(event, FailedOpen):  # without the error's message, which may quote a body; the log has it
        found[CAUSE] = text(event.kind)
    return found


_names: Final[dict[type[Event], tuple[tuple[str, str], ...]]] = {}
"""The shown attributes of each kind of event, each with its field's name."""


def _note_names(kind: type[Event]) -> tuple[tuple[str, str], ...]:
    attributes: Iterable[str] = kind.__slots__
    told = [(one, _OF_EVENT.get(one, f"callfuse.{one}")) for one in attributes if one not in _LEFT_OUT]
    _names[kind] = tuple(told)
    return _names[kind]


def _known(found: dict[str, Value]) -> dict[str, Value]:
    """Return the fields without empty and unknown ones."""
    return {name: value for name, value in found.items() if value not in _UNKNOWN}


def text(value: str) -> str:
    """Return a foreign text in a form that may be shown: cut, printable, with secrets replaced by asterisks."""
    return _text(value[: LONGEST + MARGIN])


@remembered(entries=KEPT, longest=LONGEST + MARGIN)
def _text(value: str) -> str:
    return plain(star_secrets(value, LONGEST), LONGEST)


def of_call(call: ToolCall) -> dict[str, Value]:
    """Return the fields that name a call, without its arguments."""
    return {TOOL: text(call.full_name), CALL_ID: text(bounded_id(call.id)), SIGNATURE: call.signature.hex()}


_TEXTS: Final[Mapping[str, Callable[[str], str]]] = {"session": plain}
"""How texts are shown that are not foreign: a session's name must be the same everywhere."""


@remembered(entries=KEPT, longest=LONGEST_WHERE)
def _of_where(session: str, source: str, lane: str, model: str, backend: str, dialect: str) -> dict[str, Value]:
    return _known(
        {
            SESSION: plain(session),
            SOURCE: plain(source),
            LANE: plain(lane),
            PROVIDER: plain(backend),
            MODEL: text(model),
            DIALECT: dialect,
        }
    )


def _of_verdict(verdict: Verdict) -> dict[str, Value]:
    found = verdict.finding
    return {
        **of_call(verdict.call),
        FINDING_ID: verdict.finding_id,
        KIND: found.kind,
        KINDS: found.kinds,
        COUNT: found.count,
        THRESHOLD: found.threshold,
        WINDOW: found.window_s,
        HARD: found.hard,
        CONFIDENCE: found.confidence,
        ACTION: action_of(verdict),
        FIRST: verdict.first,
        URL: page_of(found.kind),
        **(_of_pattern(found) if found.pattern else {}),
    }


def _of_pattern(found: Finding) -> dict[str, Value]:
    return {PATTERN: tuple(map(text, found.pattern)), REPETITIONS: found.repetitions}


def _shown(value: Any) -> Value:
    """Return a value of an event that is neither a number nor a text, in a form that may be shown."""
    if isinstance(value, Exception):  # its message may quote a call
        return type(value).__name__
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Outcome):  # without its text
        return str(value.kind)
    if isinstance(value, tuple):
        return tuple([text(str(one)) for one in value[:MOST]])
    return text(str(value))
