"""Bound the length of ids and names that clients and vendors choose, if they are kept longer than a request."""

from hashlib import blake2b
from typing import Final

LONGEST_ID: Final = 256
"""The most characters of an id or a name that are kept. Names have up to 128, and most ids fewer than 64."""


def bounded_id(id_: str) -> str:
    """Return a short id or name unchanged, a long one as a digest. Two results are equal if the ids are."""
    if len(id_) <= LONGEST_ID:
        return id_
    return f"blake2b-{blake2b(id_.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
