"""`callfuse tune`: compute settings from a user's own successful runs. Needs `callfuse[serve]`.

The exit code is 0, or 2 for wrong options or settings, or if no source has enough runs. Records that cannot be read are
printed on stderr, and do not change the exit code.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from callfuse.cli.runs import fail, print_faults, progress, run_command
from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.offline.files import STDIN, Reading
from callfuse.offline.report_text import TuningResult, report_tuning
from callfuse.offline.tuning import CannotTuneError, Tuned, Tuning, tune

COMMAND = "tune"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The options. `alpha`: the share of successful runs acted on at most; `write`: a file, `-` for stdout."""

    alpha: float = 0.05
    write: str = ""
    config: Path | None = None
    source: str = ""


def run_tune(files: Sequence[str], options: TuneOptions) -> int:
    """Tune by the runs of some files and write the settings; returns the exit code."""
    return run_command(COMMAND, lambda: _run(files, options))


def _run(files: Sequence[str], options: TuneOptions) -> int:
    if not 0 < options.alpha < 1:
        return fail(COMMAND, f"--max-false-positive {options.alpha:g}: use a share between 0 and 1, as in 0.05")
    try:
        settings = load_config(options.config).tool_call_loop
    except ConfigError as error:
        return fail(COMMAND, f"cannot tune these settings:\n{error}")
    if settings.models:
        what = "limits of single models cannot be tuned; take them out, and tune with the runs of one model at a time"
        return fail(COMMAND, f"tool_call_loop.models: {what}")
    tuning, reading = Tuning(settings), Reading(files, source=options.source)
    with progress(files, reading, "scoring") as step:
        for one in reading:
            tuning.take(one)
            step()
    print_faults(COMMAND, tuning.faults, tuning.fault_count)
    if not tuning.sources:
        return fail(COMMAND, f"no recorded run with a call in {', '.join(files)}")
    results = list(_results(tuning, Fraction(str(options.alpha))))
    done = [result for _, _, result in results if isinstance(result, Tuned)]
    if not done:
        lines = [f"{name}: {result}" for name, _, result in results]
        return fail(COMMAND, "\n".join(["nothing can be tuned:", *lines]))
    if options.write == STDIN and len(done) > 1:
        names = ", ".join(one.name for one in done)
        return fail(COMMAND, f"only one source can go to standard output, and there are {names}")
    _print(results, options, done)
    return 0


def _results(tuning: Tuning, alpha: Fraction) -> list[TuningResult]:
    results: list[TuningResult] = []
    for name, source in tuning.sources.items():
        try:
            results.append((name, source, tune(name, source, tuning.scale, alpha)))
        except CannotTuneError as error:
            results.append((name, source, error))
    return results


def _print(results: Sequence[TuningResult], options: TuneOptions, done: Sequence[Tuned]) -> None:
    """Write the settings, and print the report unless the settings go to standard output."""
    if options.write == STDIN:
        sys.stdout.write(done[0].as_yaml())
        sys.stdout.flush()
        return
    from callfuse.offline.report_text import console

    out = console()
    for part in report_tuning(results):
        out.print(part)
    paths = _paths(Path(options.write), done) if options.write else []
    for path, one in zip(paths, done, strict=False):
        path.write_text(one.as_yaml(), encoding="utf-8")
        out.print(f"written: {path}")


def _paths(path: Path, done: Sequence[Tuned]) -> list[Path]:
    """The file for each source; if there are several, the name of the source is part of it."""
    if len(done) == 1:
        return [path]
    slugs = [_UNSAFE.sub("-", one.name)[:80] for one in done]
    names = [slug if slug not in slugs[:at] else f"{slug}-{at + 1}" for at, slug in enumerate(slugs)]
    return [path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names]
