"""Structured log lines and counts of what callfuse does."""
