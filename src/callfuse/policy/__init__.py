"""Decides what happens to a finding: settings, the ladder of rungs, the texts."""
