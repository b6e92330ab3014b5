"""What a finding says to people and models: one sentence on what was seen, and one on what to try."""

from callfuse.detect.registry import KINDS, PARTS
from callfuse.model import Finding


def seen(finding: Finding) -> str:
    """What was found, as the end of a sentence that begins with 'this is'."""
    kind = KINDS[finding.kind]
    said = finding.stretch
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
    """Whether what was found is said of one call, and not of all calls of a round alike."""
    return "{tool}" in KINDS[finding.kind].seen or bool(finding.pattern)


def suggestion(finding: Finding) -> str:
    """What could be tried."""
    return KINDS[finding.kind].suggestion
