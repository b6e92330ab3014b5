"""What a finding says to people and models: one sentence on what was seen, and one on what to try."""

from callfuse.detect.registry import KINDS
from callfuse.model import Finding


def seen(finding: Finding) -> str:
    """What was found, as the end of a sentence that begins with 'this is'."""
    kind = KINDS[finding.kind]
    sentence = (finding.in_answer and kind.seen_in_answer) or kind.seen
    return sentence.format(
        count=finding.count, tool=finding.tool, lap=" -> ".join(finding.pattern), confidence=finding.confidence
    )


def names_call(finding: Finding) -> bool:
    """Whether what was found is said of one call, and not of all calls of a round alike."""
    return "{tool}" in KINDS[finding.kind].seen or bool(finding.pattern)


def suggestion(finding: Finding) -> str:
    """What could be tried."""
    return KINDS[finding.kind].suggestion
