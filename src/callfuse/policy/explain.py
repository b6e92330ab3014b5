"""Describe a finding to people and models: one sentence on what was seen, and one on what to try."""

from typing import Final

from callfuse.detect.registry import KINDS, PARTS
from callfuse.model import Finding
from callfuse.model.spent import Unit, figure, in_words

BEYOND: Final = "a call beyond the budget: {spent}, {allowed} allowed"
NEAR: Final = "a call near the end of the budget: {spent}, {allowed} allowed"
"""The texts about an amount spent: beyond its limit, and near it."""


def seen(finding: Finding) -> str:
    """Return what was found, as the end of a sentence that begins with 'this is'."""
    kind = KINDS[finding.kind]
    said = finding.stretch
    if said.unit:
        limit = finding.threshold - (finding.hard and said.unit == Unit.CALLS)  # the pending call is beyond
        spent, allowed = in_words(said.unit, finding.count), figure(said.unit, limit)
        return (BEYOND if finding.hard else NEAR).format(spent=spent, allowed=allowed)
    sentences = (
        PARTS[finding.kind][said.part].seen if said.part else "",
        kind.seen_in_answer if said.in_answer else "",
        kind.seen_returned if said.returned else "",
        kind.seen_uncompared if not said.compared else "",
    )
    sentence = next(filter(None, sentences), kind.seen)
    return sentence.format(
        count=finding.count,
        tool=finding.tool,
        lap=" -> ".join(finding.pattern),
        confidence=finding.confidence,
    )


def names_call(finding: Finding) -> bool:
    """Whether the description is about one call, rather than about all calls of a round alike."""
    return "{tool}" in KINDS[finding.kind].seen or bool(finding.pattern)


def suggestion(finding: Finding) -> str:
    """Return what could be tried."""
    return KINDS[finding.kind].suggestion
