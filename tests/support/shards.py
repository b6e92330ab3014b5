"""A part of the tests: each test belongs to one, by a hash of its id, on every machine and whatever else is run."""

import hashlib
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts; `number` counts from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`3/8` is the third of eight. Raises ArgumentTypeError."""
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
        shard = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not 1 <= shard.number <= shard.count:
            raise ArgumentTypeError(f"a shard is a number and how many there are, as in 3/8, not {text!r}")
        return shard

    def __contains__(self, test_id: str) -> bool:
        digest = hashlib.sha256(test_id.encode()).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1
