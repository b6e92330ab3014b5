"""`callfuse doctor`: find problems with settings, upstream, store and port, explain why a request is not guarded, and
check the configuration of an Envoy.

Everything is checked in the same way as `callfuse serve` would use it. The exit code is 0 if all is well, 1 if
something needs to be done, 2 for wrong options. A note, for example about a mode that only warns, needs no action.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from callfuse.cli.diagnosis import Check, as_json, as_lines, failed, is_well, warning
from callfuse.cli.runs import fail, run_command
from callfuse.config import Resolved, resolve
from callfuse.errors import ConfigError
from callfuse.observe.printable import plain

COMMAND: Final = "doctor"
LONGEST: Final = 500
"""The most characters of a log line that are shown."""


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The command's options. `options`: those of `serve`, in the shape of the settings file. `request`: ask each vendor
    with the user's key. `explain`: the file of a request, `path`: the request's path, `envoy`: the configuration of a
    gateway; each may be empty."""

    config: Path | None
    options: Mapping[str, object]
    request: bool = False
    explain: str = ""
    path: str = ""
    envoy: str = ""
    json: bool = False


def run_doctor(given: DoctorOptions) -> int:
    """Run all checks and print them. Returns the exit code."""
    if given.path and not given.explain:
        return fail(COMMAND, "--path is the path of the request in --explain; also give --explain FILE")
    if given.envoy and given.explain:
        return fail(COMMAND, "use only one of --explain and --envoy")
    return run_command(COMMAND, lambda: _run(given))


def _run(given: DoctorOptions) -> int:
    with _warnings() as logged:
        resolved, checks = _settings(given, logged)
        if resolved is not None and given.explain:
            from callfuse.cli.explain import explain

            checks += explain(given.explain, given.path, resolved)
        elif resolved is not None and given.envoy:
            from callfuse.cli.gateway import examine_gateway

            checks += examine_gateway(given.envoy, resolved)
        elif not (given.explain or given.envoy):
            from callfuse.cli.examine import examine, examine_versions

            checks += examine_versions()
            if resolved is not None:
                checks += asyncio.run(examine(resolved, request=given.request))
    typer.echo(as_json(checks) if given.json else "\n".join(as_lines(checks)))
    return 0 if is_well(checks) else 1


def _settings(given: DoctorOptions, logged: list[str]) -> tuple[Resolved | None, list[Check]]:
    """Load the configuration and check it. Returns None in place of the configuration if it is wrong. `logged`:
    warnings so far."""
    from callfuse.cli.examine import examine_settings

    try:
        resolved = resolve(given.config, options=given.options)
    except ConfigError as error:
        advice = "`callfuse config check FILE` checks a file; `callfuse config init` writes a file with every key"
        return None, [failed("settings", line, advice) for line in str(error).splitlines()]
    checks = [warning("settings", line, "correct it, or unset it") for line in logged]
    return resolved, [*checks, *examine_settings(resolved)]


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect callfuse's log lines from WARNING on, instead of printing them to stderr."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: Any) -> None:
            lines.append(plain(record.getMessage(), LONGEST))

    collector, logger = Collector(logging.WARNING), logging.getLogger("callfuse")
    logger.addHandler(collector)
    try:
        yield lines
    finally:
        logger.removeHandler(collector)
