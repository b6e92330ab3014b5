"""Read recorded runs from files, judge them again under given settings, report, and tune limits.

files, formats, joining   from files to runs
judging, replay           findings of each call, and figures by source and rule
report_*                  a table for the terminal, JSON and CSV, an HTML page
tuning, conformal         settings that act on at most a given share of successful runs

One run is in memory at a time; data of others is bounded.
"""
