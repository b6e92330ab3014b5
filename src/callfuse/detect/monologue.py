"""`monologue`: the model gives the same answer in words again and again, and calls nothing in between. Off by default.

Told by the request, before the model is asked: no call is pending then, and none can be withheld. So a rung that asks
the model again is a warning in the user's message, and a block an answer of callfuse's own.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class Monologue(RequestRule):
    """The same words, whatever is said to the model."""

    kind = Kind(
        "monologue",
        seen="the same answer for the last {count} times, without a call in between",
        suggestion="Say or do something else: call a tool, ask for what is missing, or say why there is no going on.",
        limit=SoftLimit(
            "answers",
            3,
            "Answers in a row with the same words and without a call. Warns at most. Off by default.",
            on=False,
            in_records=False,
        ),
        most="warn",
    )
