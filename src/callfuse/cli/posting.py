"""Post to the admin page of a running `callfuse serve`, and print why a post was refused.

The exit code of these commands is 0, 1 if the server cannot be reached or refuses the post, or 2 for wrong options or
settings.
"""

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import orjson
import typer

from callfuse.cli.running import REFUSED, UNAUTHORIZED, UNREACHABLE, RunningServer
from callfuse.observe.printable import plain

TIMEOUT_S: Final = 10.0
LONGEST_ANSWER: Final = 10_000
"""The most bytes of an answer that are read."""


def post(
    command: str, server: RunningServer, below: str, what: Mapping[str, str], query: Mapping[str, str]
) -> dict[str, Any] | None:
    """Post to an endpoint of the page, and return the JSON of the answer. A refusal is printed and returns None."""
    try:
        status, answer = _send(server, below, what, query)
    except (OSError, HTTPException, ValueError) as error:
        why = f"{plain(server.url)} cannot be reached: {plain(str(error))}; {UNREACHABLE}"
        typer.echo(f"callfuse {command}: {why}", err=True)
        return None
    if status != 200:
        why = REFUSED if status == UNAUTHORIZED else plain(str(answer.get("error") or f"status {status}"), 500)
        typer.echo(f"callfuse {command}: {why}", err=True)
        return None
    return answer


def _send(
    server: RunningServer, below: str, what: Mapping[str, str], query: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """Post, and return status and JSON. Follows no redirect, which would send the token elsewhere, and uses no
    proxy."""
    parts = urlsplit(server.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
        target = f"{parts.path}/{below}{'?' if query else ''}{urlencode(query)}"
        connection.request("POST", target, orjson.dumps(dict(what)), headers)
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
