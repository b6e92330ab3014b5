"""`retry_storm`: a client sends the same request again and again, and the vendor answers with errors only.

Recognised by the request and by earlier requests in the ledger (`conversations/retries.py`). No model answers, so none
can be warned: it is observed. If it is blocked, callfuse answers by itself without asking the vendor.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class RetryStorm(RequestRule):
    """The kind of loop in which a client sends the same request, whatever the errors say."""

    kind = Kind(
        "retry_storm",
        seen="request {count} with the same content within a minute, after nothing but errors",
        suggestion="Wait before the next try, or find out what the errors say.",
        limit=SoftLimit(
            "requests",
            10,
            "Requests with the same content within a minute, after errors of the vendor only. Only observed, unless "
            "`retry_storm_most` is `block`.",
            in_records=False,
        ),
        most="observe",
    )
