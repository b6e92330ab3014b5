"""The value types of the core: calls, outcomes, rounds, timelines, findings.

Built by dialects (from requests and responses) and by the ledger; read by detectors and policy.
"""

from callfuse.harness import MARKER
from callfuse.model.calls import ANY_TOOL, Delivery, PastCall, PlainResult, Result, SharedResult, ToolCall
from callfuse.model.finding import Finding
from callfuse.model.rounds import NOWHERE, Round
from callfuse.model.timeline import MIN_WINDOW_CALLS, EarlierBlocks, Timeline

__all__ = [
    "ANY_TOOL",
    "MARKER",
    "MIN_WINDOW_CALLS",
    "NOWHERE",
    "Delivery",
    "EarlierBlocks",
    "Finding",
    "PastCall",
    "PlainResult",
    "Result",
    "Round",
    "SharedResult",
    "Timeline",
    "ToolCall",
]
