"""Recorded runs, judged again: what would have fired on them under some settings.

Files enter; runs, tallies and reports leave. One run is in memory at a time, and whatever is kept of many is bounded.
"""
