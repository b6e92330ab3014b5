"""What a call is and what came of it: signatures and outcomes."""
