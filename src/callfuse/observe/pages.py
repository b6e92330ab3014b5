"""Make the URLs of the pages that describe kinds of findings."""

from typing import Final

DOCUMENTATION: Final = "https://github.com/callfuse/callfuse/tree/main/docs"
"""The URL in the package's metadata."""


def page_of(kind: str) -> str:
    """Return the address of the page on a kind of finding."""
    return f"{DOCUMENTATION}/kinds/{kind}.md"
