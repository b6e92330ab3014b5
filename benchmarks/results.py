"""Measure the cost of reading a new tool result, of which an agent's request has about one per round.

    python -m benchmarks.results [--rounds 30]

Reading means `outcome_of`: whether the result is an error, empty or pending, and a digest of its text without volatile
parts. There are texts of five sorts, of 4 and of 40 kB. Each row has the time, the time per byte, and the ratio to
SHA-256 of the same bytes. The runs are interleaved; the figures are medians of CPU time.
"""

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Callable
from itertools import count, islice
from typing import Final

from callfuse.model.outcomes.outcome import _outcome_of

SIZES: Final = (4_000, 40_000)
LINES: Final[dict[str, Callable[[int], str]]] = {
    "log with times": lambda n: f"2026-11-23 10:{n % 60:02}:05,123 INFO worker-{n % 7} took {n}.25 s for job {n}",
    "code": lambda n: f"{n:6}\t    if self._left > 0 and value.count(name, {n}) != len(self.pieces):",
    "listing": lambda n: f"-rw-r--r-- 1 root root {n * 37:6} Nov 23 10:0{n % 10} module_{n}.py",
    "records": lambda n: json.dumps({"order_id": f"W{n}241", "price": n + 0.5, "items": n % 5, "status": "open"}),
    "prose": lambda n: "The quick brown fox jumps over the lazy dog while the build goes on, and on.",
}


def text_of(sort: str, size: int) -> str:
    """Return a result of this sort with about `size` characters."""
    line = LINES[sort]
    lines = islice(map(line, count(1)), size // len(line(1)) + 1)
    return "\n".join(lines)[:size]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds: int = parser.parse_args().rounds
    texts = {(sort, size): text_of(sort, size) for size in SIZES for sort in LINES}
    times: dict[tuple[str, int], list[tuple[float, float]]] = {key: [] for key in texts}
    for _ in range(rounds):
        for key, text in texts.items():
            raw = text.encode()
            begun = time.process_time()
            _outcome_of(text, None, "")
            read = time.process_time()
            hashlib.sha256(raw).digest()
            times[key].append((read - begun, time.process_time() - read))
    print(f"{'result':16} {'bytes':>7} {'us':>8} {'ns a byte':>10} {'x SHA-256':>10}")
    for (sort, size), taken in times.items():
        ours, hashing = (statistics.median(column) for column in zip(*taken, strict=True))
        print(f"{sort:16} {size:7} {ours * 1e6:8.0f} {ours / size * 1e9:10.1f} {ours / hashing:10.1f}")


if __name__ == "__main__":
    main()
