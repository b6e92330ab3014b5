"""Take feedback on findings: read it, append it to the file of `admin.feedback_file`, and emit an event."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import orjson

from callfuse.admin.queries import BadQuery, NoStore
from callfuse.asgi import CallFuseMiddleware
from callfuse.conversations.ledger import StoreUnavailable
from callfuse.errors import ConfigError
from callfuse.observe.events import FEEDBACK
from callfuse.observe.findings import KeptFinding
from callfuse.policy.nearest import suggest

KEYS: Final = ("finding", "kind")
LONGEST_ID: Final = 100
"""The most characters of an id. Ids of findings have 16."""


class UnknownFinding(BadQuery):
    """Raised for an unknown finding."""

    status = 404


class NotKept(BadQuery):
    """Raised if the file could not be written, so that nothing was counted."""

    status = 500


async def take_feedback(middleware: CallFuseMiddleware, body: bytes) -> dict[str, Any]:
    """Take feedback from the JSON of a request, and return the JSON of the answer. An equal rating counts only once.
    Raises BadQuery."""
    finding_id, kind = _read(body)
    try:
        found = await middleware.findings.find(finding_id)
    except StoreUnavailable as down:
        raise NoStore(f"this process does not know the finding, and {down}; nothing was counted") from None
    if found is None:
        raise UnknownFinding(
            "no finding with this id is known: the id is wrong, the finding is too old, or it belongs to another "
            "callfuse"
        )
    line = line_of(found, kind)
    if (path := middleware.resolved.config.admin.feedback_file) is not None:
        try:
            await anyio.to_thread.run_sync(partial(append, Path(path), line))
        except OSError as error:
            raise NotKept(f"admin.feedback_file cannot be written ({error.strerror}); nothing was counted") from None
    event = await middleware.findings.say(found, kind)
    if event is not None:
        middleware.bus.emit(event)
    return {**line, "counted": event is not None}


def line_of(found: KeptFinding, feedback: str) -> dict[str, Any]:
    """Return the file's object for a finding and its rating. `time`: the time of the finding."""
    told = asdict(found)
    del told["call"]
    moment = datetime.fromtimestamp(told.pop("time"), UTC).isoformat(timespec="seconds")
    return {"finding": told.pop("finding_id"), "feedback": feedback, "time": moment, **told}


def append(path: Path, line: dict[str, Any]) -> None:
    """Append a line of JSON in one write, so that processes can share the file. Raises OSError."""
    handle = _open(path)
    try:
        os.write(handle, orjson.dumps(line) + b"\n")
    finally:
        os.close(handle)


def check_file(path: str | None) -> None:
    """Check that the file of `admin.feedback_file` can be written; None if no file is set. Raises ConfigError."""
    if path is None:
        return
    try:
        os.close(_open(Path(path)))
    except OSError as error:
        raise ConfigError(f"admin.feedback_file = {path!r}: cannot be written ({error.strerror})") from None


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _read(body: bytes) -> tuple[str, str]:
    """Read the id of the finding and the rating. Raises BadQuery."""
    shape = 'send JSON: {"finding": ID, "kind": "false_positive"}'
    try:
        given = orjson.loads(body)
    except ValueError:
        raise BadQuery(f"this is not JSON; {shape}") from None
    if not isinstance(given, dict):
        raise BadQuery(f"this is not an object; {shape}")
    for name in given:
        if name not in KEYS:
            raise BadQuery(f"there is no key {name!r}; {suggest(name, KEYS)}")
    finding_id, kind = given.get("finding"), given.get("kind")
    if not isinstance(finding_id, str) or not 0 < len(finding_id) <= LONGEST_ID:
        raise BadQuery("finding: use the id of a finding, as in log lines and events")
    if kind not in FEEDBACK:
        raise BadQuery(f"kind = {kind!r}; use one of {', '.join(FEEDBACK)}")
    return finding_id, kind
