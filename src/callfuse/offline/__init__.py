"""Reads recorded runs from files, judges them again under some settings, reports, and tunes limits.

files, formats, joining   from files to runs
judging, replay           findings of each call, and figures by source and rule
report_*                  a table for the terminal, JSON and CSV, an HTML page
tuning, conformal         settings that act on at most a given share of successful runs

One run is in memory at a time; what is kept of others is bounded.
"""
