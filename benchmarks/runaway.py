"""Measure which runaway texts the rule finds, how late, and which healthy texts it would cut.

    python -m benchmarks.runaway [--texts FILE] [--runs FOLDER] [--files FOLDER] [--look 512]

Workload. `texts`: recorded answers, a JSON object a line (`label`: runaway or healthy, `text`, `from`: where the
repetition begins). Most were cut by a limit of about 1,000 tokens, long before action is justified, so each runaway
text is also extended to `GOES_ON` characters: its last lap is repeated, and counting numbers continue with their last
step. `runs`: the arguments of recorded agents' calls. `files`: text files of programs, as in arguments of calls that
write files (default: Python and its packages), without the largest.

Few of the recorded texts are long enough for the rule to find anything, as the table shows. With `--look 512`, all its
lengths are a quarter, so that more texts count. Texts are extended by a rule similar to the measured one, so the
results show how late texts are found rather than which.

It prints the share that is found, with the 95 % interval (Wilson) in brackets, and for runaway texts the number of
characters from the first repeated one until they are found; the findings in healthy texts, of all and of those that are
long enough; the cost of adding pieces of 4 characters, the median of 5 rounds; and for each format, how much of a
streamed text that runs away from its beginning has arrived when it is reported.
"""

import argparse
import json
import lzma
import re
import statistics
import sysconfig
import time
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from benchmarks.chunks import PATHS, scripted
from benchmarks.quality import DEFAULT_FOLDER, Share
from callfuse.detect import runaway
from callfuse.detect.runaway import LOOK, GrowingText, Runaway
from callfuse.dialects import DIALECTS
from callfuse.guard.assembly import Assembly
from callfuse.policy.settings import LoopSettings
from callfuse.testing import Answer
from callfuse.wire.aws_events import MEDIA_TYPE

DEFAULT_TEXTS: Final = Path("../shared/runaway/mint.jsonl.xz")
GOES_ON: Final = 100_000
"""The length of extended texts, in characters. A recorded agent's model wrote 79,222."""
LARGEST: Final = 1_000_000
PIECE: Final = 4
STREAMED: Final = (4, 40)
"""Characters per frame: one token, and ten."""
STREAM_TYPES: Final = (b"application/json", b"text/event-stream", b"application/x-ndjson", MEDIA_TYPE)
LAP: Final = "The sauce must be stirred until it is thick. "
ROUNDS: Final = 5
_NUMBER: Final = re.compile("[0-9]+")


class Text(NamedTuple):
    """A text, its name, and where it begins to repeat itself, if it does."""

    name: str
    text: str
    begin: int = 0


def found_in(text: str) -> Runaway | None:
    """Return the finding in a whole text."""
    return GrowingText().add(text)


def going_on(one: Text) -> Text:
    """Return an extended runaway text. Blanks at its end, which the recording added, are dropped."""
    text = one.text if not one.text[one.begin :].strip() else one.text.rstrip()
    tail = text[one.begin :]
    if rest := exact_rest(tail):
        return one._replace(text=text + rest)
    return one._replace(text=text.rstrip("0123456789") + counting_rest(tail))


def exact_rest(tail: str) -> str:
    """Return the continuation of a tail of equal laps; white space is kept as it is. Empty if its laps differ."""
    if not tail.strip():
        return tail * (GOES_ON // len(tail) + 1)
    period = period_of(tail)
    return tail[-period:] * (GOES_ON // period + 1) if period else ""


def counting_rest(tail: str) -> str:
    """Return the continuation of a tail whose laps differ only in numbers; empty for any other tail."""
    tail = tail.rstrip("0123456789")
    masked = _NUMBER.sub("0", tail)
    period = period_of(masked)
    each = masked[:period].count("0")
    numbers = [int(number) for number in _NUMBER.findall(tail)]
    if not each or len(numbers) < 2 * each:
        return ""
    at = len(masked) % period
    lap = masked[at:period] + masked[:at]
    rest: list[str] = []
    for _ in range(GOES_ON // len(lap) + 1):
        for part in re.split("(0)", lap):
            if part == "0":
                numbers.append(abs(2 * numbers[-each] - numbers[-2 * each]))
                part = str(numbers[-1])
            rest.append(part)
    return "".join(rest)


def period_of(text: str) -> int:
    """Return the shortest period of a text, at most half of its length; 0 if there is none."""
    return next((at for at in range(1, len(text) // 2 + 1) if text[at:] == text[:-at]), 0)


def recorded_texts(path: Path) -> Iterator[tuple[Text, bool]]:
    """Yield every recorded text, and whether it runs away."""
    with lzma.open(path, "rt") as lines:
        for record in map(json.loads, lines):
            runs_away = record["label"] == "runaway"
            yield Text(record["id"], record["text"], record["from"] if runs_away else 0), runs_away


def arguments_of(folder: Path) -> Iterator[Text]:
    """Yield the arguments of every recorded call."""
    for path in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            for record in map(json.loads, lines):
                for call in record["calls"]:
                    yield Text(f"{record['id']}, {call['name']}", _text_of(call["arguments"]))


def _text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def files_of(folder: Path) -> Iterator[Text]:
    """Yield the texts of a folder and its subfolders."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and runaway.LEAST <= path.stat().st_size <= LARGEST:
            text = path.read_bytes().decode("utf-8", "ignore")
            if "\0" not in text:
                yield Text(str(path.relative_to(folder)), text)


def print_runaway(name: str, texts: Iterable[Text]) -> None:
    """Print the findings in runaway texts, and after how many characters."""
    taken = list(texts)
    found = [(one, found_in(one.text)) for one in taken]
    until = sorted(what.end - one.begin for one, what in found if what)
    late = f"{statistics.median(until):8,.0f} {until[len(until) * 9 // 10]:8,}" if until else f"{'-':>8} {'-':>8}"
    print(f"{name:44} {len(taken):8,} {Share(len(until), len(taken)).text():>24} {late}")


def print_healthy(name: str, texts: Iterable[Text]) -> None:
    """Print the findings in healthy texts, and their names."""
    count, long, characters, found = 0, 0, 0, []
    for one in texts:
        count += 1
        long += len(one.text) >= runaway.LEAST
        characters += len(one.text)
        if what := found_in(one.text):
            found.append((one, what))
    of_long = f"{Share(len(found), long).text()} of {long:,} long enough; {characters:,} characters"
    print(f"{name:44} {count:8,} {Share(len(found), count).text():>24}   {of_long}")
    for one, what in found:
        how = "exactly" if what.exact else "nearly"
        print(f"    {one.name}: {what.laps} laps {how} of {what.unit[:60]!r}, from {what.begin:,} to {what.end:,}")


def print_cost() -> None:
    """Print the cost of a piece, for the files of `asyncio`. The cost of the checks is measured by adding everything at
    once."""
    text = "".join(path.read_text() for path in sorted((Path(sysconfig.get_path("stdlib")) / "asyncio").glob("*.py")))
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    taken = []
    for _ in range(ROUNDS):
        add = GrowingText().add
        begun = time.process_time()
        for piece in pieces:
            add(piece)
        each = time.process_time()
        found_in(text)
        taken.append(((each - begun) / len(pieces) * 1e6, (time.process_time() - each) / len(pieces) * 1e6))
    each_us, at_once_us = (statistics.median(column) for column in zip(*taken, strict=True))
    print(f"\na piece of {PIECE} characters: {each_us:.3f} us, of which {at_once_us:.3f} us for the looks")


def print_streams() -> None:
    """Print, for each format, how many characters of a streamed text, and bytes of its frames, arrive until it is
    reported."""
    print(f"\n{'streamed, until it is told':44} {'characters':>12} {'bytes':>12}")
    for dialect in DIALECTS:
        path: str | None = PATHS.get(dialect.name)
        form = next((one for kind in STREAM_TYPES if (one := dialect.stream_format(kind, asked=True))), None)
        if path is None or form is None:
            continue
        for chars in STREAMED:
            chunks = scripted(dialect.name, Answer(LAP * (GOES_ON // len(LAP) * 3)), chars)
            assembly, size, said = Assembly(dialect, 1, LoopSettings(), None, form), 0, 0
            for chunk in chunks:
                assembly.feed(chunk)
                size += len(chunk)
                said += chars
                if assembly.texts.found:
                    print(f"  {dialect.name}, {chars} characters a frame".ljust(44), f"{said:12,} {size:12,}")
                    break
            else:
                raise SystemExit(f"{dialect.name}: a text of {3 * GOES_ON:,} characters is not found")


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS)
    parser.add_argument("--runs", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--files", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--look", type=int, default=LOOK, help="characters from one look to the next")
    options = parser.parse_args(arguments)
    look: int = options.look
    with patch.multiple(runaway, LOOK=look, WINDOW=2 * look, LEAST=2 * look):
        print_tables(options.texts, options.runs, options.files)
        print_cost()
    print_streams()


def print_tables(texts: Path, runs: Path, files: Path) -> None:
    """Print a row for each available sort of texts."""
    print(f"{'':44} {'texts':>8} {'found, %':>24} {'median':>8} {'90 %':>8}")
    if texts.is_file():
        recorded = list(recorded_texts(texts))
        away = [one for one, runs_away in recorded if runs_away]
        on = [going_on(one) for one in away]
        long = [one for one in away if len(one.text) - one.begin >= 3 * runaway.LOOK]
        print_runaway("run away, as recorded", away)
        print_runaway("  long enough for a unit of several words", long)
        print_runaway("run away, go on", on)
        for name, equal in (("  equal laps", True), ("  laps with numbers that count", False)):
            of_name = [bool(exact_rest(one.text[one.begin :].rstrip() or " ")) is equal for one in away]
            print_runaway(name, compress(on, of_name))
        print_healthy("healthy, recorded answers", [one for one, runs_away in recorded if not runs_away])
    if runs.is_dir():
        print_healthy("healthy, recorded arguments", arguments_of(runs))
    print_healthy("healthy, files", files_of(files))


if __name__ == "__main__":
    main()
