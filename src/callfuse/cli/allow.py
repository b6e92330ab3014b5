"""`callfuse allow`: let a call pass that a running `callfuse serve` has reported as a loop, even if it was refused."""

from typing import Final

import typer

from callfuse.cli.posting import post
from callfuse.cli.running import RunningServer
from callfuse.cli.runs import fail
from callfuse.errors import ConfigError
from callfuse.observe.printable import plain

COMMAND: Final = "allow"
_SAID: Final = {
    "call": "this call of {tool} passes in session {session}",
    "tool": "every call of {tool} passes in session {session}",
    "nothing": "nothing passes any more in session {session}",
}


def run_allow(finding: str, what: str, client: str, url: str) -> int:
    """Allow the `call` or `tool` of a finding, or `nothing` any more; for `always`, print the lines for the settings
    file. `client`: selects one if several have a session of this name. `url`: that of the admin page; empty: from the
    settings. Returns the exit code."""
    try:
        server = RunningServer.find(url)
    except ConfigError as error:
        return fail(COMMAND, str(error))
    query = {"client": client} if client else {}
    answer = post(COMMAND, server, "allow", {"finding": finding, "what": what}, query)
    if answer is None:
        return 1
    if what == "always":
        typer.echo("# Nothing is changed yet. Add these lines to the settings file:")
        typer.echo("\n".join(plain(line, 1500) for line in str(answer.get("lines", "")).splitlines()))
        return 0
    sessions = answer.get("sessions")
    session = ", ".join(map(str, sessions)) if isinstance(sessions, list) else ""
    typer.echo(plain(f"{finding}: {_SAID[what].format(tool=answer.get('tool'), session=session)}", 1000))
    return 0
