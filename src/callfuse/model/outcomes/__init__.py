"""What came of a call: a digest of everything in its result, its kind, and a short text.

    parts (text, media, values) -> normalised -> digest
                                -> what they say: error, nothing, still running, a cause outside
                                -> the gist of an error

A result that the client emptied by putting a placeholder in its place is unknown: it has no outcome.
"""

from callfuse.model.outcomes.outcome import SHORT_TEXT, Outcome, OutcomeKind, failed, outcome_of, same_outcome

__all__ = ["SHORT_TEXT", "Outcome", "OutcomeKind", "failed", "outcome_of", "same_outcome"]
