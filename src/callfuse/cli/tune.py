"""`callfuse tune`: compute settings from a user's own successful runs. Needs `callfuse[serve]`.

The exit code is 0, or 2 for wrong options or settings, or if no source has enough runs. Records that cannot be read are
printed on stderr, and do not change the exit code.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from callfuse.cli.runs import fail, print_faults, progress, run_command
from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.offline.feedback import Feedback, Raised, read_feedback
from callfuse.offline.files import STDIN, Reading
from callfuse.offline.report_text import TuningResult, report_tuning
from callfuse.offline.tuning import CannotTuneError, Tuned, Tuning, limits_of, tune
from callfuse.policy.sections import LIMITS
from callfuse.policy.settings import LoopSettings
from callfuse.reference.writing import Values, replace_file, section_in, written_into

COMMAND = "tune"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The options. `alpha`: the largest share of successful runs that may be interrupted; `write`: a file, `-` for
    stdout; `only`: the source whose settings are written; `feedback`: a file of ratings."""

    alpha: float = 0.05
    write: str = ""
    config: Path | None = None
    source: str = ""
    only: str = ""
    feedback: str = ""

    @property
    def target(self) -> Path | None:
        """The existing file into which the limits are written."""
        path = Path(self.write)
        return path if self.write not in ("", STDIN) and path.exists() else None

    @property
    def base(self) -> Path | None:
        """The file with the settings to tune; None for that of the environment, if any."""
        return self.config or self.target


def run_tune(files: Sequence[str], options: TuneOptions) -> int:
    """Tune by the runs of files and write the settings. Returns the exit code."""
    return run_command(COMMAND, lambda: _run(files, options))


def _run(files: Sequence[str], options: TuneOptions) -> int:
    if not 0 < options.alpha < 1:
        return fail(COMMAND, f"--max-false-positive {options.alpha:g}: use a share between 0 and 1, as in 0.05")
    target = options.target
    if target and options.config and not target.samefile(options.config):
        what = f"{target} exists, and --config names other settings: leave out --config, or write to a new file"
        return fail(COMMAND, f"--write: {what}")
    try:
        settings = load_config(options.base).tool_call_loop
    except ConfigError as error:
        return fail(COMMAND, f"cannot tune these settings:\n{error}")
    try:
        feedback = read_feedback(Path(options.feedback)) if options.feedback else Feedback()
    except ConfigError as error:
        return fail(COMMAND, str(error))
    if settings.models:
        what = "limits of single models cannot be tuned; remove them, and tune with the runs of one model at a time"
        return fail(COMMAND, f"tool_call_loop.models: {what}")
    words = bool(settings.detectors.monologue)
    tuning, reading = Tuning(settings), Reading(files, source=options.source, words=words)
    with progress(files, reading, "scoring") as step:
        for one in reading:
            tuning.take(one)
            step()
    print_faults(COMMAND, tuning.faults, tuning.fault_count)
    if not tuning.sources:
        return fail(COMMAND, f"no recorded run with a call in {', '.join(files)}")
    results = list(_results(tuning, Fraction(str(options.alpha)), feedback))
    done = [result for _, _, result in results if isinstance(result, Tuned)]
    if not done:
        lines = [f"{name}: {result}" for name, _, result in results]
        return fail(COMMAND, "\n".join(["nothing can be tuned:", *lines]))
    if options.only:
        done = [one for one in done if one.name == options.only]
    if options.write and len(done) != 1:
        names = ", ".join(name for name, _, result in results if isinstance(result, Tuned))
        return fail(COMMAND, f"--write needs one source: choose it with --only; there are {names}")
    try:
        _print(results, options, done, feedback)
    except ConfigError as error:
        return fail(COMMAND, f"nothing is written:\n{error}")
    return 0


def _results(tuning: Tuning, alpha: Fraction, feedback: Feedback) -> list[TuningResult]:
    results: list[TuningResult] = []
    for name, source in tuning.sources.items():
        try:
            results.append((name, source, tune(name, source, tuning.scale, alpha).heeding(feedback)))
        except CannotTuneError as error:
            results.append((name, source, error))
    return results


def _print(results: Sequence[TuningResult], options: TuneOptions, done: Sequence[Tuned], feedback: Feedback) -> None:
    """Write the settings, and print the report unless the settings go to standard output."""
    if options.write == STDIN:
        sys.stdout.write(done[0].as_yaml())
        sys.stdout.flush()
        return
    from callfuse.offline.report_text import console

    text = _file_text(options, done[0]) if options.write else ""
    out = console()
    for part in report_tuning(results):
        out.print(part)
    if options.feedback:
        out.print(feedback.summary)
    if options.write:
        backup = replace_file(Path(options.write), text)
        out.print(f"written: {options.write}{f' (before: {backup})' if backup else ''}")


def _file_text(options: TuneOptions, tuned: Tuned) -> str:
    """Return the text of the file to write: a new one, or the existing one with its limits replaced. Raises ConfigError
    if it cannot be edited, or would not have the intended settings."""
    target, is_toml = options.target, options.write.lower().endswith(".toml")
    if target is None and not is_toml:
        return tuned.as_yaml()
    try:
        before = target.read_bytes().decode("utf-8") if target else ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{target}: it is not UTF-8 (byte {error.start})") from None
    values = _values(tuned, section_in(before, options.write)) if target else tuned.block()
    text = written_into(before, options.write, values, tuned.comments())
    with TemporaryDirectory() as folder:
        copy = Path(folder, Path(options.write).name)
        copy.write_text(text, encoding="utf-8", newline="")
        if limits_of(load_config(copy, env={}).tool_call_loop) != tuned.limits:
            raise ConfigError(f"{options.write}: the edited file would lack the tuned limits; write to a new file")
    return text


def _values(tuned: Tuned, there: Values) -> dict[str, Any]:
    """Return the limits for a section with these values: those that it already has, and those that differ from the
    default."""
    default = limits_of(LoopSettings())
    values: dict[str, Any] = {
        name: limit
        for name, limit in tuned.limits.items()
        if name not in LIMITS and (name in there or limit != default[name])
    }
    own = there.get("detectors")
    detectors = own if isinstance(own, Mapping) else {}
    values["detectors"] = {
        name: _limit_beside(detectors.get(name), LIMITS[name].unit, limit) for name, limit in tuned.detectors().items()
    }
    if tuned.raised:
        values["per_tool"] = _of_tools(tuned.raised, there.get("per_tool"))
    return values


def _of_tools(raised: Sequence[Raised], there: object) -> dict[str, Any]:
    """Return the raised limits of single tools, for a section `per_tool` with these values."""
    tools = there if isinstance(there, Mapping) else {}
    values: dict[str, Any] = {}
    for one in raised:
        own = tools.get(one.pattern)
        limits = own.get("detectors") if isinstance(own, Mapping) else None
        known = limits.get(one.kind) if isinstance(limits, Mapping) else None
        mine = values.setdefault(one.pattern, {})
        if one.kind in LIMITS:
            mine.setdefault("detectors", {})[one.kind] = _limit_beside(known, LIMITS[one.kind].unit, one.limit)
        else:
            mine[one.key] = one.limit
    return values


def _limit_beside(there: object, unit: str, limit: int | bool) -> Any:
    """Return a detector's limit: with the other keys of its object if the file has one, else only the limit."""
    if not isinstance(there, Mapping):
        return limit
    return {"limit" if "limit" in there else unit: int(limit)}
