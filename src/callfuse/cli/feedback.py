"""`callfuse feedback`: tell a running `callfuse serve` what one of its findings was.

The exit code is 0, 1 if the server cannot be reached or refuses it, or 2 for wrong options or settings.
"""

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import typer

from callfuse.cli.running import REFUSED, UNAUTHORIZED, UNREACHABLE, RunningServer
from callfuse.cli.runs import fail
from callfuse.errors import ConfigError
from callfuse.observe.events import FEEDBACK
from callfuse.observe.printable import plain

COMMAND: Final = "feedback"
TIMEOUT_S: Final = 10.0
LONGEST_ANSWER: Final = 10_000
"""Bytes of an answer that are read."""


def run_feedback(finding: str, kind: str, url: str) -> int:
    """Send what a finding was. `url`: that of the admin page; empty: by the settings. Returns the exit code."""
    if kind not in FEEDBACK:
        return fail(COMMAND, f"--kind {kind}: use one of {', '.join(FEEDBACK)}")
    try:
        server = RunningServer.find(url)
    except ConfigError as error:
        return fail(COMMAND, str(error))
    try:
        status, answer = _send(server, {"finding": finding, "kind": kind})
    except (OSError, HTTPException, ValueError) as error:
        why = f"{plain(server.url)} cannot be reached: {plain(str(error))}; {UNREACHABLE}"
        typer.echo(f"callfuse {COMMAND}: {why}", err=True)
        return 1
    if status != 200:
        why = REFUSED if status == UNAUTHORIZED else plain(str(answer.get("error") or f"status {status}"), 500)
        typer.echo(f"callfuse {COMMAND}: {why}", err=True)
        return 1
    what = f"{answer.get('kind')}, {answer.get('tool')}, {answer.get('count')}/{answer.get('threshold')}"
    counted = "counted" if answer.get("counted") else "was counted before"
    typer.echo(plain(f"{finding} ({what}): {kind}, {counted}"))
    return 0


def _send(server: RunningServer, what: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Post to the page of a server; returns status and JSON. Follows no redirect, which would take the token
    elsewhere, and uses no proxy."""
    parts = urlsplit(server.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
        connection.request("POST", f"{parts.path}/feedback", orjson.dumps(what), headers)
        answer = connection.getresponse()
        return answer.status, _as_mapping(answer.read(LONGEST_ANSWER))
    finally:
        connection.close()


def _as_mapping(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
