"""`callfuse report`: report the results of observing, from callfuse's own JSON log.

The exit code is 0, or 2 for wrong options or settings, or if no file has a line of an exchange.
"""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Final

import orjson

from callfuse.cli.runs import fail, run_command
from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.observe.printable import printable
from callfuse.offline.advice import advise, report_lines, report_object
from callfuse.offline.files import lines_of
from callfuse.offline.observed import Observed

COMMAND: Final = "report"
HOW: Final = "callfuse serve writes them with --log-format json (CALLFUSE_SERVE_LOG_FORMAT=json)"


def run_report(files: Sequence[str], config: Path | None, feedback: str, *, json: bool = False) -> int:
    """Report the results in logs. Returns the exit code. `feedback`: a file of ratings; empty for none. `json`: print
    one JSON object."""
    return run_command(COMMAND, lambda: _run(files, config, feedback, json=json))


def _run(files: Sequence[str], config: Path | None, feedback: str, *, json: bool) -> int:
    try:
        settings = load_config(config).tool_call_loop
    except ConfigError as error:
        return fail(COMMAND, f"cannot compare with these settings:\n{error}")
    observed = Observed()
    for name in files:
        try:
            for line in lines_of(name):
                observed.take(line)
        except OSError as error:
            return fail(COMMAND, f"{name}: {error.strerror or error}")
    if feedback and (why := _rate(observed, feedback)):
        return fail(COMMAND, why)
    if not observed.exchanges:
        return fail(COMMAND, f"no line of an exchange in {', '.join(files)}: {HOW}")
    advice = advise(observed, settings)
    if json:
        print(dumps(report_object(observed, advice), indent=2))
        return 0
    for text in report_lines(observed, advice):
        print(printable(text))
    return 0


def _rate(observed: Observed, name: str) -> str:
    """Note the ratings of a file. Returns what is wrong with it, or an empty text."""
    try:
        for line in lines_of(name):
            try:
                given = orjson.loads(line)
                observed.rate(str(given["finding"]), str(given["feedback"]))
            except (ValueError, TypeError, KeyError):
                continue  # as in `callfuse tune`, a line that is not a rating is skipped
    except OSError as error:
        return f"--feedback {name}: {error.strerror or error}"
    return ""
