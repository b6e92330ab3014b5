"""Search, and say what was found: a line for each kind of failure, with what shows it again."""

import argparse
import gc
import random
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.cases import Case, configurations, describe, draw_case, replies_of, request_of, simpler
from tests.fuzz.checks import Failure, Result, check
from tests.fuzz.corpus import Corpus, Damaged, case_of, smaller, text_of, vary
from tests.fuzz.inputs import case_of_input, seeds
from tests.fuzz.libfuzzer import NotInstalled, atheris, instrument, keep_needed, lead, leave, write_inputs
from tests.fuzz.reach import PACKAGE, Edge, Reach
from tests.fuzz.virtual import Hang, VirtualLoop

PROGRAM = "python -m tests.fuzz"
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
    first: dict[str, tuple[str, Failure]] = field(default_factory=dict)
    """By kind of failure, with the arguments that show it again."""
    fail_open: Counter[str] = field(default_factory=Counter)
    opened_at: dict[str, str] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    longest_s: float = 0.0
    stall_s: float = STALL_S
    """Infinite where the code is slower than it is otherwise."""

    def look_at(self, index: int) -> None:
        """Run the case of this index."""
        self.look(draw_case(self.seed, index, own_only=self.own_only), self.again(index))

    def again(self, index: int) -> str:
        """The arguments that show the case of this index."""
        return f"--seed {self.seed} --only {index}{' --own' if self.own_only else ''}"

    def look(self, case: Case, again: str, undisturbed: AbstractContextManager[None] | None = None) -> None:
        """Run one case. `again`: the arguments that show it. `undisturbed`: a context in which it takes no longer than
        it needs."""
        result = self.check(case)
        if result.longest_s > self.stall_s:  # once more, for the collector may have been at work, and keep the shorter
            with undisturbed or nullcontext():
                result.longest_s = min(result.longest_s, self.check(case).longest_s)
        self.longest_s = max(self.longest_s, result.longest_s)
        if result.longest_s > self.stall_s:
            self.stalls[again] = result.longest_s
        for failure in result.failures:
            self.kinds[failure.kind] += 1
            self.first.setdefault(failure.kind, (again, failure))
        for cause in result.fail_open:
            self.fail_open[cause] += 1
            self.opened_at.setdefault(cause, again)

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


@dataclass
class Guided:
    """A search that keeps the cases with which callfuse takes a branch for the first time, and makes others from them.
    Each second case is one of those."""

    search: Search
    corpus: Corpus
    reach: Reach
    seen: set[Edge] = field(default_factory=set)

    def replay(self) -> None:
        """Run the cases of the folder, and remove those that reach nothing that a smaller one does not."""
        for path, case in self.corpus.load():
            if not self.look(case) or self.corpus.keep(case) != path:
                path.unlink()

    def look_at(self, index: int) -> None:
        """Run the case of this index, or one that is made from a kept one."""
        dice = random.Random(f"{self.search.seed} {index} made from a kept one")
        if index % 2 and self.corpus.cases:
            case = vary(self.corpus.cases, dice)
        else:
            case = draw_case(self.search.seed, index, own_only=self.search.own_only)
        if new := self.look(case):
            self.corpus.keep(smaller(case, new, self._reached))

    def look(self, case: Case) -> set[Edge]:
        """Run a case; the edges that none before has reached."""
        self.reach.take()
        self.search.look(case, f"--case '{text_of(case)}'", self.reach.paused())
        new = self.reach.take() - self.seen
        self.seen |= new
        return new

    def _reached(self, case: Case) -> set[Edge]:
        self.search.check(case)
        return self.reach.take()


@dataclass
class Led:
    """A search that libFuzzer leads: the case of each input that it makes, up to so many and so long."""

    search: Search
    count: int
    until_s: float
    """By `time.monotonic`."""
    done: int = 0

    def look(self, data: bytes) -> None:
        """Run the case of an input. Raises KeyboardInterrupt, which ends libFuzzer, where it is enough."""
        if self.done >= self.count or time.monotonic() > self.until_s:
            raise KeyboardInterrupt
        self.done += 1
        case = case_of_input(data, own_only=self.search.own_only)
        self.search.look(case, f"--case '{text_of(case)}'")


def report(search: Search, done: int, took_s: float) -> None:
    """Print what was found."""
    print(f"{done:,} cases in {took_s:,.0f} s, {done / took_s:,.0f} a second; the loop was held up for at most "
          f"{search.longest_s * 1000:.0f} ms")  # fmt: skip
    for cause, count in search.fail_open.most_common():
        print(f"failed open {count:>7}  {cause}\n  {PROGRAM} {search.opened_at[cause]}")
    for again, seconds in sorted(search.stalls.items(), key=lambda item: -item[1])[:20]:
        print(f"stall of {seconds * 1000:.0f} ms: {PROGRAM} {again}")
    if len(search.stalls) > 20:
        print(f"and {len(search.stalls) - 20} stalls more")
    for kind, count in search.kinds.most_common():
        again, failure = search.first[kind]
        print(f"\nFAILED {count}: {kind}\n  {PROGRAM} {again}\n  {failure.detail[:700]}")


def show(search: Search, case: Case | None) -> None:
    """Run one case, print it, and print what is left of it where it fails. Raises Damaged if there is none."""
    if case is None:
        raise Damaged("the case is made of recorded bodies that are not here")
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
    search.look(case, "")


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
    """Search; 1 where something was found, 2 where the corpus or a case is damaged, or Atheris is missing."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the index to begin with, to go on where a search ended")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long, wherever it is")
    parser.add_argument("--corpus", type=Path, help="keep what reaches something new in this folder, and begin with it")
    parser.add_argument("--only", type=int, help="run and shrink the case of this index")
    parser.add_argument("--case", help="run and shrink this case, as a report names it")
    parser.add_argument(
        "--atheris", action="store_true", help="let libFuzzer make the cases; --corpus is its own folder"
    )
    parser.add_argument("--input", type=Path, help="run and shrink the case of this input of libFuzzer")
    parser.add_argument("--own", action="store_true", help="leave recorded bodies out")
    options = parser.parse_args(arguments)
    search = Search(options.seed, options.own)
    configurations()
    gc.collect()
    gc.freeze()  # a collection of all that was imported takes longer than a case
    try:
        if options.case is not None:
            show(search, case_of(options.case))
        elif options.input is not None:
            show(search, case_of_input(options.input.read_bytes(), own_only=options.own))
        elif options.only is not None:
            show(search, draw_case(options.seed, options.only, own_only=options.own))
        elif options.atheris:
            with TemporaryDirectory() as folder:
                run_led(search, options.corpus or Path(folder), options)
        else:
            run(search, options)
    except (Damaged, NotInstalled) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        search.loop.drop()
    status = int(bool(search.kinds or search.stalls))
    if options.atheris:
        leave(status)
    return status


def run(search: Search, options: argparse.Namespace) -> None:
    """Search, and print what was found. Raises Damaged."""
    begun = told = time.monotonic()
    look_at, reach, corpus = search.look_at, Reach(), None
    if options.corpus is not None:
        corpus = Corpus(options.corpus)
        guided = Guided(search, corpus, reach)
        look_at = guided.look_at
        reach.start()
    index = options.start
    try:
        if corpus is not None:
            guided.replay()
            print(f"{len(corpus.cases)} cases of the corpus reach {len(guided.seen):,} edges", flush=True)
        for index in range(options.start, options.start + options.count):
            look_at(index)
            now = time.monotonic()
            if now - told > TELLS_EACH_S:
                told = now
                print(f"case {index}: {dict(search.kinds)}, {len(search.stalls)} stalls", file=sys.stderr, flush=True)
            if now - begun > options.seconds:
                break
    finally:
        if corpus is not None:
            reach.stop()
    report(search, index + 1 - options.start, time.monotonic() - begun)
    if corpus is not None:
        print(f"\n{len(corpus.cases)} cases in the corpus reach {len(guided.seen):,} edges; {corpus.left_out} left out")
    print(f"\ngo on with --seed {search.seed} --start {index + 1}")


def run_led(search: Search, folder: Path, options: argparse.Namespace) -> None:
    """Search as libFuzzer leads, and print what was found. Raises NotInstalled, Damaged."""
    begun = time.monotonic()
    engine = atheris()
    search.stall_s = float("inf")  # counters make callfuse slower
    write_inputs(folder, seeds())
    guided = Guided(search, Corpus(folder), Reach())
    guided.reach.start()
    kept = keep_needed(folder, lambda data: bool(guided.look(case_of_input(data, own_only=search.own_only))))
    guided.reach.stop()
    print(f"{kept} inputs reach {len(guided.seen):,} edges", flush=True)
    print(f"{instrument(engine, PACKAGE):,} functions have counters", flush=True)
    led = Led(search, options.count, begun + options.seconds)
    lead(engine, led.look, folder, search.seed)
    report(search, led.done, time.monotonic() - begun)
    print(f"\n{len([*folder.iterdir()])} inputs are in the folder")


if __name__ == "__main__":
    sys.exit(main())
