"""In-chat commands."""
