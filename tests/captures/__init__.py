"""Recorded bodies of real vendors through the middleware."""
