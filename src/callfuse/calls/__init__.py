"""What a call is and what came of it: signatures, outcomes, the assembly of streamed deltas."""
