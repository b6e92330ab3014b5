"""`callfuse feedback`: tell a running `callfuse serve` what one of its findings was.

The exit code is 0, 1 if the server cannot be reached or refuses it, or 2 for wrong options or settings.
"""

import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import typer

from callfuse.cli.runs import fail
from callfuse.config import load_config
from callfuse.config.environment import ADMIN_TOKEN, admin_token
from callfuse.errors import ConfigError
from callfuse.observe.events import FEEDBACK
from callfuse.observe.printable import plain

COMMAND: Final = "feedback"
TIMEOUT_S: Final = 10.0
LONGEST_ANSWER: Final = 10_000
"""Bytes of an answer that are read."""
_URL_HINT: Final = "use the address of the admin page, as in http://127.0.0.1:8100/_callfuse"
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - what listens everywhere listens here


def run_feedback(finding: str, kind: str, url: str) -> int:
    """Send what a finding was. `url`: that of the admin page; empty: by the settings. Returns the exit code."""
    if kind not in FEEDBACK:
        return fail(COMMAND, f"--kind {kind}: use one of {', '.join(FEEDBACK)}")
    try:
        token, url = admin_token(os.environ), url or _own_url()
    except ConfigError as error:
        return fail(COMMAND, str(error))
    if token is None:
        return fail(COMMAND, f"set {ADMIN_TOKEN}: the token that `callfuse serve` has, or has printed at its start")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return fail(COMMAND, f"--url {plain(url)}: {_URL_HINT}")
    try:
        status, answer = _send(url, token, {"finding": finding, "kind": kind})
    except (OSError, HTTPException, ValueError) as error:
        typer.echo(f"callfuse {COMMAND}: {plain(url)} cannot be reached: {plain(str(error))}", err=True)
        return 1
    if status != 200:
        why = plain(str(answer.get("error") or f"status {status}"), 500)
        typer.echo(f"callfuse {COMMAND}: {why}", err=True)
        return 1
    what = f"{answer.get('kind')}, {answer.get('tool')}, {answer.get('count')}/{answer.get('threshold')}"
    counted = "counted" if answer.get("counted") else "was said before"
    typer.echo(plain(f"{finding} ({what}): {kind}, {counted}"))
    return 0


def _own_url() -> str:
    """The address of the admin page of a `callfuse serve` with the settings of this environment."""
    config = load_config()
    host = _EVERY_ADDRESS.get(config.serve.host, config.serve.host)
    return f"http://{host}:{config.serve.port}{config.admin.path}"


def _send(url: str, token: str, what: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Post to the page at this address; returns status and JSON. Follows no redirect, which would take the token
    elsewhere, and uses no proxy."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection.request("POST", f"{parts.path.rstrip('/')}/feedback", orjson.dumps(what), headers)
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
