"""Settings from a user's own successful runs, so that at most a given share of such runs is acted on.

Recorded runs enter, a few numbers of each are kept; lines, what they brought on runs held out, and settings leave.
"""
