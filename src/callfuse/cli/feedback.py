"""`callfuse feedback`: rate a finding of a running `callfuse serve`."""

from typing import Final

import typer

from callfuse.cli.posting import post
from callfuse.cli.running import RunningServer
from callfuse.cli.runs import fail
from callfuse.errors import ConfigError
from callfuse.observe.events import FEEDBACK
from callfuse.observe.printable import plain

COMMAND: Final = "feedback"


def run_feedback(finding: str, kind: str, url: str) -> int:
    """Send a rating. `url`: that of the admin page; empty: from the settings. Returns the exit code."""
    if kind not in FEEDBACK:
        return fail(COMMAND, f"--kind {kind}: use one of {', '.join(FEEDBACK)}")
    try:
        server = RunningServer.find(url)
    except ConfigError as error:
        return fail(COMMAND, str(error))
    answer = post(COMMAND, server, "feedback", {"finding": finding, "kind": kind}, {})
    if answer is None:
        return 1
    what = f"{answer.get('kind')}, {answer.get('tool')}, {answer.get('count')}/{answer.get('threshold')}"
    counted = "counted" if answer.get("counted") else "was counted before"
    typer.echo(plain(f"{finding} ({what}): {kind}, {counted}"))
    return 0
