"""Search, and say what was found: a line for each kind of failure, with what shows it again."""

import argparse
import gc
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.cases import Case, configurations, describe, draw_case, replies_of, request_of, simpler
from tests.fuzz.checks import Failure, Result, check
from tests.fuzz.virtual import Hang, VirtualLoop

STALL_S = 0.05
"""The longest time for which no one body may hold up the event loop."""
TELLS_EACH_S = 30.0


@dataclass(slots=True)
class Search:
    """A search and what it has found so far."""

    seed: int
    own_only: bool = False
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    kinds: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, Failure]] = field(default_factory=dict)
    fail_open: Counter[str] = field(default_factory=Counter)
    opened_at: dict[str, int] = field(default_factory=dict)
    stalls: dict[int, float] = field(default_factory=dict)
    longest_s: float = 0.0

    def look_at(self, index: int) -> None:
        """Run one case."""
        case = draw_case(self.seed, index, own_only=self.own_only)
        result = self.check(case)
        if result.longest_s > STALL_S:  # once more, for the collector may have been at work, and keep the shorter
            result.longest_s = min(result.longest_s, self.check(case).longest_s)
        self.longest_s = max(self.longest_s, result.longest_s)
        if result.longest_s > STALL_S:
            self.stalls[index] = result.longest_s
        for failure in result.failures:
            self.kinds[failure.kind] += 1
            self.first.setdefault(failure.kind, (index, failure))
        for cause in result.fail_open:
            self.fail_open[cause] += 1
            self.opened_at.setdefault(cause, index)

    def check(self, case: Case) -> Result:
        """What comes of a case; a hang is a failure, and ends its loop."""
        try:
            return check(case, self.loop)
        except Hang as hang:
            self.loop.drop()
            self.loop = VirtualLoop()
            return Result([Failure(f"hangs: {hang}", "")])

    def shrink(self, case: Case, kind: str) -> Case:
        """The case with all left out that this kind of failure does not need."""
        while True:
            fits = (one for one in simpler(case) if any(found.kind == kind for found in self.check(one).failures))
            less = next(fits, None)
            if less is None:
                return case
            case = less


def report(search: Search, done: int, took_s: float) -> None:
    """Print what was found."""
    print(f"{done:,} cases in {took_s:,.0f} s, {done / took_s:,.0f} a second; the loop was held up for at most "
          f"{search.longest_s * 1000:.0f} ms")  # fmt: skip
    for cause, count in search.fail_open.most_common():
        print(f"failed open {count:>7}  first in case {search.opened_at[cause]}: {cause}")
    for index, seconds in sorted(search.stalls.items(), key=lambda item: -item[1])[:20]:
        print(f"stall of {seconds * 1000:.0f} ms in case {index}")
    if len(search.stalls) > 20:
        print(f"and {len(search.stalls) - 20} stalls more")
    for kind, count in search.kinds.most_common():
        index, failure = search.first[kind]
        again = f"python -m tests.fuzz --seed {search.seed} --only {index}{' --own' if search.own_only else ''}"
        print(f"\nFAILED {count}: {kind}\n  {again}\n  {failure.detail[:700]}")


def show(search: Search, index: int) -> None:
    """Run one case, print it, and print what is left of it where it fails."""
    case = draw_case(search.seed, index, own_only=search.own_only)
    result = search.check(case)
    print(describe(case))
    print(f"{result.longest_s * 1000:.1f} ms; failed open: {result.fail_open}")
    if not result.failures:
        print_bodies(case)
    for kind in dict.fromkeys(one.kind for one in result.failures):
        small = search.shrink(case, kind)
        details = (one.detail for one in search.check(small).failures if one.kind == kind)
        detail = next(details, "once it held: something in it is left to chance")
        print(f"\nFAILED: {kind}\n{describe(small)}\n{detail}")
        print_bodies(small)
    search.look_at(index)


def print_bodies(case: Case) -> None:
    """What client and app say, as it is cut."""
    for turn in case.turns:
        request = request_of(case, turn, whole=False)
        print(f"\nrequest to {request.path}\n{request.body!r}")
        for reply in replies_of(case, turn, whole=False):
            print(f"answer, status {reply.status}, {reply.headers}")
            for chunk in reply.chunks:
                print(f"    {chunk!r}")


def main(arguments: list[str] | None = None) -> int:
    """Search; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the index to begin with, to go on where a search ended")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long, wherever it is")
    parser.add_argument("--only", type=int, help="run and shrink the case of this index")
    parser.add_argument("--own", action="store_true", help="leave recorded bodies out")
    options = parser.parse_args(arguments)
    search = Search(options.seed, options.own)
    configurations()
    gc.collect()
    gc.freeze()  # a collection of all that was imported takes longer than a case
    if options.only is not None:
        show(search, options.only)
        return int(bool(search.kinds or search.stalls))
    begun = told = time.monotonic()
    index = options.start
    for index in range(options.start, options.start + options.count):
        search.look_at(index)
        now = time.monotonic()
        if now - told > TELLS_EACH_S:
            told = now
            print(f"case {index}: {dict(search.kinds)}, {len(search.stalls)} stalls", file=sys.stderr, flush=True)
        if now - begun > options.seconds:
            break
    report(search, index + 1 - options.start, time.monotonic() - begun)
    print(f"\ngo on with --seed {options.seed} --start {index + 1}")
    return int(bool(search.kinds or search.stalls))


if __name__ == "__main__":
    sys.exit(main())
