"""`compaction_storm`: a client compacts its history again and again, without a call in between.

Recognised by the summary in a request and by earlier summaries in the ledger (`conversations/compactions.py`). It is
observed; if it is blocked, callfuse answers by itself without asking the vendor.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class CompactionStorm(RequestRule):
    """The kind of loop in which a client makes one summary after another."""

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
