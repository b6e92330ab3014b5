"""What should happen to a finding: settings, the ladder of rungs, the texts."""
