"""Make foreign texts safe for terminals and pages."""


def printable(text: str) -> str:
    """Replace control characters, which could steer a terminal: white space by blanks, others by U+FFFD."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
