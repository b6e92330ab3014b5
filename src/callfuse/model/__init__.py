"""The words of the core as values: calls, outcomes, rounds, findings, verdicts.

Built by dialects (from requests and responses) and by the ledger; read by detectors and policy. What costs something
to know, a call's signature or its outcome, is worked out when first asked for and then kept.
"""

from callfuse.harness import MARKER
from callfuse.model.calls import ANY_TOOL, Result, ToolCall
from callfuse.model.finding import Finding, Kind
from callfuse.model.replayed import READ_AT_ONCE, InBlocks, Replayed
from callfuse.model.rounds import NOWHERE, Round
from callfuse.model.timeline import MIN_WINDOW_CALLS, Timeline

__all__ = [
    "ANY_TOOL",
    "MARKER",
    "MIN_WINDOW_CALLS",
    "NOWHERE",
    "READ_AT_ONCE",
    "Finding",
    "InBlocks",
    "Kind",
    "Replayed",
    "Result",
    "Round",
    "Timeline",
    "ToolCall",
]
