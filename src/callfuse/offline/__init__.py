"""Recorded runs: read them from files, judge them again under some settings, report and tune.

files, formats, joining   from files to runs
judging, replay           what would have fired, and figures by source and rule
report_*                  as a table at the terminal, as JSON and CSV, as an HTML page
tuning, conformal         settings that act on at most a given share of successful runs

One run is in memory at a time, and what is kept of many is bounded.
"""
