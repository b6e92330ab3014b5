"""`callfuse replay`: report what given settings would have found in recorded runs. Needs `callfuse[serve]`.

The exit code is 0, or 2 for wrong options or settings, or if no run could be read. Records that cannot be read are
printed on stderr, and do not change the exit code if there are runs.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from callfuse.cli.runs import fail, print_faults, progress, run_command
from callfuse.config import load_config
from callfuse.detect.registry import KINDS
from callfuse.errors import ConfigError
from callfuse.offline.files import STDIN, Reading
from callfuse.offline.replay import Replay
from callfuse.offline.report_data import as_csv, as_json
from callfuse.offline.report_page import as_html

MAX_DRAWN_RUNS = 200
"""The most runs of each source that the HTML page draws."""

_REPORTS = {"json": as_json, "csv": as_csv, "html": as_html}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of the command. `rules`: empty for all; `reports`: pairs of kind and file (`-`: standard output)."""

    config: Path | None = None
    source: str = ""
    rules: Sequence[str] = ()
    show: int = 0
    reports: tuple[tuple[str, str], ...] = ()

    @property
    def takes_stdout(self) -> bool:
        """Whether a report goes to standard output, instead of the table."""
        return any(path == STDIN for _, path in self.reports)


def run_replay(files: Sequence[str], options: ReplayOptions) -> int:
    """Replay the runs of files and write the reports. Returns the exit code."""
    return run_command("replay", lambda: _run(files, options))


def _run(files: Sequence[str], options: ReplayOptions) -> int:
    try:
        replay = _replay_for(options)
    except ConfigError as error:
        return fail("replay", f"cannot replay with these settings:\n{error}")
    except ValueError as error:
        return fail("replay", str(error))
    words = bool(replay.settings.detectors.monologue)
    reading = Reading(files, source=options.source, words=words)
    with progress(files, reading, "replaying") as step:
        for one in reading:
            replay.take(one)
            step()
    print_faults("replay", replay.faults, replay.fault_count)
    if not reading.records:
        return fail("replay", f"no recorded run in {', '.join(files)}")
    _write(replay, options)
    return 0


def _replay_for(options: ReplayOptions) -> Replay:
    """Make an empty replay. Raises ConfigError for wrong settings, and ValueError for wrong options."""
    if options.show < 0:
        raise ValueError(f"--show {options.show}: use 0 or more")
    known = [*KINDS]
    for rule in options.rules:
        if rule not in known:
            raise ValueError(f"--rule {rule}: use one of {', '.join(known)}")
    if sum(path == STDIN for _, path in options.reports) > 1:
        raise ValueError("only one report can go to standard output")
    settings = load_config(options.config).tool_call_loop
    if not settings.enabled:
        print("callfuse replay: tool_call_loop.enabled is false; replay runs as if it were true", file=sys.stderr)
        settings = settings.model_copy(update={"enabled": True})
    if settings.models:
        print(
            "callfuse replay: tool_call_loop.models is ignored, because few records name the backend", file=sys.stderr
        )
    draw = MAX_DRAWN_RUNS if any(kind == "html" for kind, _ in options.reports) else 0
    keep_runs = any(kind == "json" for kind, _ in options.reports)
    return Replay(settings, options.rules or known, show=options.show, draw=draw, keep_runs=keep_runs)


def _write(replay: Replay, options: ReplayOptions) -> None:
    """Print the table, unless a report goes to standard output, and write the reports."""
    if not options.takes_stdout:
        from callfuse.offline.report_text import console, report_replay

        out = console()
        for part in report_replay(replay, out.width):
            out.print(part)
    for kind, path in options.reports:
        text = _REPORTS[kind](replay)
        if path == STDIN:
            sys.stdout.buffer.write(text.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()
        else:
            Path(path).write_bytes(text)
