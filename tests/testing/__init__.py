"""The scripted vendor: its rules, its scripts, and what the official SDKs make of its answers."""
