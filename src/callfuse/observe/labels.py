"""Define the values that labels of metrics may have. Each set is fixed at the start; any other value becomes `other`.

Texts of clients, models and vendors are never labels: no tools, models, sessions or error messages. So the number of
series does not depend on the traffic.
"""

from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from callfuse.detect.registry import KINDS as KINDS_OF_LOOPS
from callfuse.dialects import DIALECTS as ALL_DIALECTS
from callfuse.dialects import UNREAD
from callfuse.observe import events
from callfuse.observe.events import UPSTREAM_ERROR
from callfuse.policy.ladder import ALLOW
from callfuse.policy.rungs import Rung

OTHER: Final = "other"
MCP: Final = "mcp"
"""The dialect label for calls of an MCP server's tools."""
DIALECTS: Final = frozenset(one.name for one in ALL_DIALECTS) | {MCP}
KINDS: Final = frozenset(KINDS_OF_LOOPS)
ACTIONS: Final = frozenset({*map(str, Rung), ALLOW, "none"})
"""What was done about a call: a rung, `allow` of a callback, `none` without a finding."""
OUTCOMES: Final = frozenset({*events.OUTCOMES.values(), UPSTREAM_ERROR})
"""The outcomes of exchanges: what callfuse did, or how the exchange ended unless it was complete."""
STATUSES: Final = frozenset({*(str(one.value) for one in HTTPStatus), "499", *map(str, range(520, 531))})
"""Statuses of answers: those of HTTP, and further ones of nginx, Cloudflare and Anthropic."""
PARTS: Final = frozenset({"before", "held", "asked"})
"""Where callfuse adds time: before the app is called, in holds, and where the model is asked again."""
VERDICTS: Final = frozenset({"soft", "hard"})
"""Which of its limits a finding has reached."""
TOKEN_TYPES: Final = ("input", "cached", "output")
TOKEN_SOURCES: Final = frozenset({"vendor", "estimate"})
"""The source of an answer's token count."""
HOW: Final = frozenset({"released", "withheld", "failed", "cut"})
"""The ends of holds."""

_READING: Final = frozenset({"content-encoding", "content-type", "no content-type", "max_total_bytes"})
"""Why an answer is not read."""
NOT_GUARDED: Final = _READING | {
    *UNREAD,
    "disconnect",
    "max_request_bytes",
    "protocol",
    "read_timeout_s",
    "request encoding",
    "request not JSON",
    "request values",
    "signed chain",
    "signed command",
    "websocket",
}
"""Why requests and answers pass unguarded."""
NOT_WATCHED: Final = _READING
"""Why healthy answers are not read."""

STAGES: Final = (
    "in a request",
    "while adding texts",
    "while asking",
    "while counting",
    "while guarding",
    "while keeping",
    "while recording",
    "while repairing",
    "while reporting",
    "while watching",
)
"""The steps of an exchange that can fail (`asgi/fail_open.py`)."""
ERROR: Final = "error"
LIMITS: Final = frozenset({"choices", "max_hold_s", "max_held_bytes", "max_response_bytes", "max_total_bytes"})
BROKEN: Final = frozenset(
    {"broken guard", "error in the stream", "malformed frame", "malformed stream", "unreadable JSON"}
)
FAIL_OPEN: Final = LIMITS | BROKEN | {ERROR} | {f"{ERROR} {stage}" for stage in STAGES}
"""Why calls pass unjudged."""

OPERATIONS: Final = frozenset({"read", "write", "probe", "value", "finding", "feed", "findings", "index"})
"""Operations of a store; `value` for a value that cannot be read."""
RESULTS: Final = frozenset({"changed", "same", "ended", "user"})
"""How a model reacted after it had read about a finding."""
ARMS: Final = frozenset({"guarded", "holdout"})
"""Whether findings were acted on, or only observed to measure the benefit of acting."""
FALSE_POSITIVE: Final = "false_positive"
FEEDBACK: Final = frozenset({FALSE_POSITIVE, "true_positive", "too_late"})
"""A rating of a finding."""
DROPS: Final = frozenset({"lane", "max_ledger_bytes", "max_sessions"})
"""The limits by which lanes and sessions are forgotten before their time."""


def one_of(values: Collection[str], value: str) -> str:
    """Return the value if it is among these, else `other`."""
    return value if value in values else OTHER


def fail_open_cause(kind: str) -> str:
    """Return why calls passed unjudged, by `FailedOpen.kind`; of an error, the step that raised it, not its type."""
    for stage in STAGES:
        if kind.endswith(f" {stage}"):
            return f"{ERROR} {stage}"
    if kind in LIMITS or kind in BROKEN:
        return kind
    return ERROR if kind.isidentifier() else OTHER


def arm_of(arm: str) -> str:
    """Return the arm of an event; `guarded` if it has none."""
    return one_of(ARMS, arm or "guarded")
