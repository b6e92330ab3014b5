"""Texts from outside as terminals and pages may show them."""


def printable(text: str) -> str:
    """A text without what could steer a terminal: white space as blanks, any other control as U+FFFD."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
