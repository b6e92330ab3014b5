"""Make foreign texts safe for terminals, pages and log lines."""


def printable(text: str) -> str:
    """Replace control characters, which could control a terminal: white space by blanks, others by U+FFFD."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def plain(text: str, limit: int = 200) -> str:
    """Make a foreign text safe for one log line: cut it, and escape what is not printable."""
    shown = text[:limit]
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown)
