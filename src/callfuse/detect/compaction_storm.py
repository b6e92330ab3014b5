"""`compaction_storm`: a client compacts its history again and again, without a call in between.

Told by the summary in a request and by what the ledger knows of those before it (`conversations/compactions.py`). It is
observed; a block is an answer of callfuse's own, without asking the vendor.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class CompactionStorm(RequestRule):
    """One summary after the other."""

    kind = Kind(
        "compaction_storm",
        seen="compaction {count} of the history in a row, without a call in between",
        suggestion="Begin a new session, or remove what is too long for the model from the context.",
        limit=SoftLimit(
            "compactions",
            4,
            "Compactions of a history in a row, without a call or a message of a person in between. Only observed, "
            "unless `compaction_storm_most` is `block`.",
            in_records=False,
        ),
        most="observe",
    )
