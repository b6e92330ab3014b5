"""Turn the result of a tool call into an `Outcome`: a digest for comparing results, a kind, and a short text.

    parts (text, media, values) -> status: error, no data, still running, transient
                                -> normalise -> digest (plain numbers are replaced in errors only)
                                -> digest of the error message

If the client has replaced the result with a placeholder, the outcome is unknown (None).
"""

from callfuse.model.outcomes.outcome import SHORT_TEXT, Outcome, OutcomeKind, is_failure, outcome_of, same_outcome

__all__ = ["SHORT_TEXT", "Outcome", "OutcomeKind", "is_failure", "outcome_of", "same_outcome"]
