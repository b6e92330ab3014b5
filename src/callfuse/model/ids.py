"""Bound ids and names, which clients and vendors choose, where they are kept longer than a request lives."""

from hashlib import blake2b
from typing import Final

LONGEST_ID: Final = 256
"""Characters of an id or a name that are kept. Names have up to 128, and most ids fewer than 64."""


def bounded_id(id_: str) -> str:
    """Return an id or a name in a form of bounded length: itself if short, else a digest. Equal ids have equal
    forms."""
    if len(id_) <= LONGEST_ID:
        return id_
    return f"blake2b-{blake2b(id_.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
