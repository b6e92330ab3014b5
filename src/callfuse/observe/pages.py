"""Where people read about a kind of finding: the address of its page in the documentation."""

from typing import Final

DOCUMENTATION: Final = "https://github.com/callfuse/callfuse/tree/main/docs"
"""The address that the package's metadata names."""


def page_of(kind: str) -> str:
    """The address of the page on a kind of finding."""
    return f"{DOCUMENTATION}/kinds/{kind}.md"
