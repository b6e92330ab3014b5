"""What a finding says to people and models: one sentence on what was seen, and one on what to try."""

from typing import Final

from callfuse.model import Finding, Kind

_SEEN: Final = {
    Kind.REPEAT: "call {count} of {tool} in a row with the same arguments, and nothing new came of it",
    Kind.REPEAT_CHANGING: "call {count} of {tool} in a row with the same arguments, whatever came back",
    Kind.NO_NEWS: "round {count} in a row that only repeats known calls, and they brought what they had brought before",
    Kind.CYCLE: "lap {count} of one sequence of calls ({lap}), each lap with the same results",
    Kind.SAME_ERROR: "round {count} in which {tool} fails with the same error, with no success in between",
    Kind.UNKNOWN_TOOL: "call {count} in a row of a tool that does not exist, here {tool}",
    Kind.SIMILAR: "call {count} of {tool} in a row with nearly the same arguments ({confidence:.0%} alike) and result",
    Kind.STAGNATION: "call {count} in a row that brings the same result, whatever is called",
    Kind.BUDGET: "one call more than one request may take ({count} counted)",
}
_TRY: Final = {
    Kind.REPEAT: "Try other arguments or another tool, or go on with what is already known.",
    Kind.REPEAT_CHANGING: "Decide on what it has returned, or wait for longer before asking again.",
    Kind.NO_NEWS: "Use what these calls have returned, or do something that has not been done yet.",
    Kind.CYCLE: "Leave the sequence: change one of its steps, or answer with what is known.",
    Kind.SAME_ERROR: "Read the error and mend its cause first, or take another tool.",
    Kind.UNKNOWN_TOOL: "Call one of the tools that are declared, or answer in plain text.",
    Kind.SIMILAR: "Change the approach rather than a detail of the arguments.",
    Kind.STAGNATION: "The answer does not depend on these calls: change the approach.",
    Kind.BUDGET: "Answer with what is known, and say what is missing.",
}


def seen(finding: Finding) -> str:
    """What was found, as the end of a sentence that begins with 'this is'."""
    return _SEEN[finding.kind].format(
        count=finding.count, tool=finding.tool, lap=" -> ".join(finding.lap), confidence=finding.confidence
    )


def suggestion(finding: Finding) -> str:
    """What could be tried."""
    return _TRY[finding.kind]
