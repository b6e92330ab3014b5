"""`monologue`: the model gives the same text answer again and again, and calls nothing in between. Off by default.

Recognised in the request, before the model is asked: no call is pending then, and none can be withheld. So a rung that
asks the model again becomes a warning in the user's message, and a block becomes an answer by callfuse itself.
"""

from callfuse.detect.detector import RequestRule
from callfuse.detect.kind import Kind, SoftLimit


class Monologue(RequestRule):
    """The kind of loop in which a model repeats its text, whatever the user writes."""

    kind = Kind(
        "monologue",
        seen="the same answer for the last {count} times, without a call in between",
        suggestion="Say or do something else: call a tool, ask for what is missing, or say why you cannot continue.",
        limit=SoftLimit(
            "answers",
            3,
            "Answers in a row with the same words and without a call. Warns at most. Off by default.",
            on=False,
        ),
        most="warn",
    )
