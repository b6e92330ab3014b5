"""Write log lines: a structured one for each finding, one for each cause of failing open. Credentials are never logged.

A finding is logged as a WARNING the first time that its streak reaches a rung, and each time that it is blocked; else
at INFO. DEBUG adds a transcript: each call with its signature and verdict, each verdict with its evidence and
arguments, rounds pruned from the ledger, and the steps of the guard, frame by frame.
"""

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from callfuse.boundary import Boundary
from callfuse.model import ToolCall
from callfuse.model.secrets import star_secrets
from callfuse.observe import events
from callfuse.observe.counted import TABLE, Key
from callfuse.observe.counts import bounded
from callfuse.observe.events import CourseMended, Event, FeedbackGiven, FindingSeen, SettingsChanged, action_of
from callfuse.observe.fields import text as shown
from callfuse.observe.json_lines import only_handler
from callfuse.observe.pages import page_of
from callfuse.observe.printable import plain
from callfuse.policy.ladder import OnLoopError, Verdict

logger: Final = logging.getLogger("callfuse")
Args = tuple[object, ...] | dict[str, object]
"""The arguments of a line: by position, which is three times as fast, or by name."""

SHORT_LANE: Final = 8
"""Characters of a conversation's digest in a line; fields have all of it."""
SHORT_SIGNATURE: Final = 50
"""Characters of tool and arguments in the line of a finding."""
MAX_CALLS_TEXT: Final = 2000
"""Characters of call ids in the DEBUG line of a verdict."""
MAX_CAUSE: Final = 500
"""Characters of a cause."""
MAX_CAUSES: Final = 200
"""Causes of one kind of event that are logged, each once."""

_LINE: Final = (
    "Tool call loop detected in session %(session_id)s: tool=%(tool)s, repeats=%(count)d/%(max_repeats)d, "
    "window=%(ttl)ss, model=%(model)s, backend=%(backend)s, action=%(action)s, signature=%(signature)s..., "
    "kind=%(kind)s"
)
_ID: Final = ", finding_id=%(finding_id)s"
_BLOCKS: Final = ", blocks=%(blocks)d"
_LANE: Final = ", lane=%(short_lane)s, named by %(session_source)s"
_ARM: Final = ", arm=%(arm)s"
_WOULD: Final = ", would have been %(would)s"
_FEEDBACK: Final = "Feedback on finding %(finding_id)s (%(kind)s of %(tool)s): %(feedback)s"
_CALL: Final = "Call in session %s: tool=%s, verdict=%s, signature=%s of %s"
_VERDICT: Final = (
    "Verdict in session %(session_id)s: kind=%(kinds)s, tool=%(tool)s, count=%(count)d/%(max_repeats)d, hard=%(hard)s, "
    "calls=[%(calls)s], rung=%(action)s, confidence=%(confidence)g, signature=%(digest)s of %(call)s"
)
_BY: Final = {"command": "with a command", "page": "on the page"}
_BLOWN: Final = (
    "The fuse has blown in session %(session_id)s: %(blocks)d blocks in a row without a new call, so "
    "the model was not asked: model=%(model)s, backend=%(backend)s, action=%(action)s"
)


def short_lane(session: str, lane: str) -> str:
    """Return a lane's name for log lines, with a short digest; empty if its session has the same name."""
    agent, dot, digest = lane.rpartition(".")
    return "" if session.endswith(lane) else f"{agent}{dot}{digest[:SHORT_LANE]}"


def write(to: logging.Logger, level: int, line: str, args: Args, fields: dict[str, object]) -> None:
    """Write a line with these arguments, and the fields as `extra`, to a logger that is enabled for the level.

    Fast path: if only a `JsonHandler` gets the line, it is written without a record (7 us). Else the record is made
    here (12 us): `logger.log` (25 us) would also find the caller, and check each field against the record's attributes.
    """
    handler = only_handler(to, level)
    if handler is not None:
        handler.write(to.name, level, line % args, fields)
        return
    given = args if isinstance(args, tuple) else (args,)
    record = to.makeRecord(to.name, level, __file__, 0, line, given, None, "write")
    record.__dict__.update(fields)
    to.handle(record)


def finding(
    verdict: Verdict,
    *,
    session: str,
    model: str,
    backend: str,
    dialect: str,
    source: str = "",
    lane: str = "",
    blocks: int = 0,
    finding_id: str = "",
    arm: str = "",
    would: str = "",
) -> None:
    """Log a finding and what was done about it, or would have been. `source`: where the session id was found.

    `blocks`: how often the lane was blocked, including this time if the call is blocked.
    """
    level = logging.WARNING if verdict.first or verdict.blocks else logging.INFO
    if not logger.isEnabledFor(level):
        return
    found = verdict.finding
    text = f"{found.tool}:{verdict.call.text}"
    start = star_secrets(text, SHORT_SIGNATURE)
    fields: dict[str, object] = {
        "session_id": session,
        "session_source": source,
        "lane": lane,
        "backend": backend,
        "model": shown(model),
        "dialect": dialect,
        "tool": shown(found.tool),
        "finding_id": finding_id,
        "kind": str(found.kind),
        "count": found.count,
        "max_repeats": found.threshold,
        "ttl": f"{found.window_s:g}",
        "hard": found.hard,
        "confidence": found.confidence,
        "action": action_of(verdict),
        "blocks": blocks,
        "arm": arm,
        "would": shown(would),
        "signature": plain(start),
        "url": page_of(found.kind),
    }
    more = _ID if finding_id else ""
    more += _BLOCKS if blocks and verdict.blocks else ""
    short = short_lane(session, lane)
    more += _LANE if short else ""
    more += (_ARM if arm else "") + (_WOULD if would else "")
    write(logger, level, _LINE + more, fields | {"short_lane": short} if short else fields, fields)
    if logger.isEnabledFor(logging.DEBUG):
        evidence = {
            "kinds": "+".join(map(str, found.kinds or (found.kind,))),
            "calls": plain(", ".join(found.calls), MAX_CALLS_TEXT),
            "digest": found.signature.hex(),
            "call": plain(starred := star_secrets(text), len(starred)),
        }
        logger.debug(_VERDICT, fields | evidence, extra=fields)


def call(seen: ToolCall, action: str, *, session: str) -> None:
    """Log, at DEBUG, a call of an exchange, with its signature and what was done about it (`none`: no finding)."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    text = star_secrets(f"{seen.full_name}:{seen.text}")
    tool, what = shown(seen.full_name), plain(text, len(text))
    logger.debug(_CALL, session, tool, action, seen.signature.hex(), what)


def pruned(rounds: int, *, kept: int, session: str) -> None:
    """Log, at DEBUG, how many rounds were pruned from a lane, because the user wrote or there were too many."""
    if rounds > 0:
        logger.debug("Pruned in session %s: %d rounds, %d kept", session, rounds, kept)


def blown(
    count: int, *, session: str, model: str, backend: str, dialect: str, source: str = "", lane: str = ""
) -> None:
    """Log that callfuse has answered by itself, after `count` blocks in a row, without asking the model."""
    fields: dict[str, object] = {
        "session_id": session,
        "session_source": source,
        "lane": lane,
        "blocks": count,
        "model": shown(model),
        "backend": backend,
        "dialect": dialect,
        "action": "blown",
    }
    short = short_lane(session, lane)
    logger.warning(_BLOWN + (_LANE if short else ""), fields | {"short_lane": short}, extra=fields)


def fail_open(cause: str, *, session: str) -> None:
    """Log that callfuse let calls pass unjudged; `cause` says why in one line."""
    logger.error("callfuse failed open in session %s: %s", plain(session), _quoted(cause))


def ignored_header(name: str, problem: str) -> None:
    """Log that a header which should change a setting is unknown or cannot be parsed."""
    logger.warning("the header %s is ignored; further ones like it are not logged: %s", _quoted(name), _quoted(problem))


def callback_failure(error: Exception) -> None:
    """Log that `on_loop` has raised, timed out, or returned no rung.

    The message of any error but `OnLoopError`, which is fit for a log, is at DEBUG only: it may quote the call.
    """
    why = str(error) if isinstance(error, OnLoopError) else type(error).__name__
    logger.warning("on_loop failed, so the mode decides: %s", _quoted(why))
    logger.debug("on_loop failed", exc_info=error)


def session_changed(event: SettingsChanged) -> None:
    """Log that a session has changed its settings."""
    by, what = _BY.get(event.by, shown(event.by)), _quoted(event.what)
    if event.is_off:
        logger.warning("Session %s has switched the guard off %s: %s", plain(event.session), by, what)
    else:
        logger.info("Session %s has changed its settings %s: %s", plain(event.session), by, what)


def steer_failure(cause: str) -> None:
    """Log that the model could not be asked again, so the next rung follows."""
    logger.warning("The model could not be asked again: %s", _quoted(cause))


def heartbeat_failure(error: Exception) -> None:
    """Log that a heartbeat could not be sent to the client."""
    logger.debug("No heartbeat: %s", type(error).__name__)


def feedback(event: FeedbackGiven) -> None:
    """Log a rating of a finding."""
    said = {"finding_id": event.finding_id, "kind": event.found, "tool": event.tool, "feedback": event.kind}
    if logger.isEnabledFor(logging.INFO):  # its texts may come from another process
        quoted: dict[str, object] = {name: _quoted(text) for name, text in said.items()}
        write(logger, logging.INFO, _FEEDBACK, quoted, quoted)


def mended(event: CourseMended) -> None:
    """Log, at DEBUG, how the model reacted to a finding that it read about."""
    said = (event.finding_id, event.where.session, event.result)
    logger.debug("After finding %s in session %s: %s", *map(_quoted, said))


def tracer(session: str) -> Callable[[str], None] | None:
    """Return a function that logs the steps of a guard; None unless DEBUG is enabled, so that no lines are built."""
    if not logger.isEnabledFor(logging.DEBUG):
        return None

    def trace(line: str) -> None:
        with Boundary():  # a log handler that fails must not end a hold
            logger.debug("Guard in session %s: %s", session, line)

    return trace


def unguarded_exchange(cause: str) -> None:
    """Log that an exchange passes unguarded, and why."""
    logger.warning("callfuse does not guard this exchange; further ones like it are not logged: %s", _quoted(cause))


def store_down(store: str, why: str) -> None:
    """Log that the shared store has failed. `why` may quote a server, so control characters are escaped."""
    what = "callfuse continues with the requests' histories and this process's memory, and keeps trying"
    logger.warning("the store %s is down, %s: %s", shown(store), what, _quoted(why))


def store_up(store: str) -> None:
    """Log that the shared store answers again."""
    logger.info("the store %s is up again", shown(store))


def store_failed(store: str, operation: str) -> None:
    """Log that values of the shared store come from a newer version. Other failures have their own lines."""
    if operation == events.StoreFailed.NEWER:
        what = "callfuse does not overwrite them, and continues with the requests' histories and this process's memory"
        logger.warning("the store %s has values of a newer version of callfuse: %s", shown(store), what)


def store_without_asyncio(store: str) -> None:
    """Log that the app does not run under asyncio, which the store needs."""
    logger.error("the store %s works with asyncio only: callfuse uses this process's memory instead", shown(store))


def _quoted(cause: str) -> str:
    """Return a cause that is safe to log: an error's message may quote what a client or a model wrote."""
    return plain(star_secrets(cause, MAX_CAUSE), MAX_CAUSE)


_LINES: Final[Mapping[type[Event], Callable[[Any], None]]] = {
    events.CallSeen: lambda event: call(event.call, event.action, session=event.where.session),
    events.FindingSeen: lambda event: _finding(event),
    events.FuseBlown: lambda event: blown(event.blocks, **event.where._asdict()),
    events.AskFailed: lambda event: steer_failure(event.cause),
    events.CallbackFailed: lambda event: callback_failure(event.error),
    events.SettingsChanged: lambda event: session_changed(event),
    events.FeedbackGiven: lambda event: feedback(event),
    events.CourseMended: lambda event: mended(event),
    events.StoreDown: lambda event: store_down(event.store, event.why),
    events.StoreUp: lambda event: store_up(event.store),
}
_LINES_ONCE: Final[Mapping[type[Event], Callable[[Any], None]]] = {
    events.FailedOpen: lambda event: fail_open(event.cause, session=event.session),
    events.NotGuarded: lambda event: unguarded_exchange(event.cause),
    events.HeaderIgnored: lambda event: ignored_header(event.header, event.problem),
    events.StoreWithoutLoop: lambda event: store_without_asyncio(event.store),
    events.StoreFailed: lambda event: store_failed(event.store, event.operation),
}
"""Events that are logged only the first time for each label."""


class LogSink:
    """Writes the line of each event that has one (`observe/bus.py`)."""

    kinds: Final = frozenset((*_LINES, *_LINES_ONCE))

    def __init__(self) -> None:
        self._known: dict[type[Event], set[Key]] = {kind: set() for kind in _LINES_ONCE}
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Write the line of an event."""
        kind = type(event)
        line = _LINES.get(kind)
        if line is None and kind in _LINES_ONCE and self._is_first(event):
            line = _LINES_ONCE[kind]
        if line is not None:
            line(event)

    def _is_first(self, event: Event) -> bool:
        """Whether this is the first event with its label."""
        known = self._known[type(event)]
        with self._lock:
            key = bounded(TABLE[type(event)].key(event), known, MAX_CAUSES)
            is_first = key not in known
            known.add(key)
            return is_first


def _finding(event: FindingSeen) -> None:
    told = {"finding_id": event.finding_id, "arm": event.arm, "would": event.would}
    finding(event.verdict, **event.where._asdict(), **told, blocks=event.blocks)
