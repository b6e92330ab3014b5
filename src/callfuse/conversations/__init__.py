"""Identify sessions and lanes, and keep their state between exchanges: identity, ledger, and the merged timeline."""
