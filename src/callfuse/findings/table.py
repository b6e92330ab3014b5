"""Keep findings in SQLite: a file that several processes may write, or the memory of this one.

A row is a finding with data from its events (`observe/fields.py`): the finding itself, the action, the model's
reaction, and its rating. `loop` is the id of the finding with which its loop began: the newest beginning in the lane,
in whatever order processes write. All functions block: run them in a thread.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from threading import Lock
from typing import Any, Final

from callfuse.findings.query import FindingsQuery
from callfuse.observe import fields as names
from callfuse.observe.activity import UNNAMED
from callfuse.observe.reading import read_fields
from callfuse.wire.jsontext import NotJSON, dumps, loads

MEMORY: Final = ":memory:"
MOST: Final = 50_000
"""The most rows of a file; the newest are kept. With the default of `admin.content`, a row has 2 to 3 KB."""
MOST_IN_MEMORY: Final = 5000
LONGEST: Final = 64_000
"""The most bytes of a row's details. With the setting `full`, they have about 12,000."""
DAY_S: Final = 86_400.0
PRUNE_S: Final = 60.0
"""The pause between two removals of old rows."""
BUSY_S: Final = 5.0
"""How long a write waits for other processes."""
MOST_VALUES: Final = 50
"""The most values of a column that are offered as filters."""
VERSION: Final = 1
"""The version of the schema, stored in the file's `user_version`."""
COLUMNS: Final = (
    *("id", "time", "loop", "begins", "session", "lane", "model", "provider", "dialect", "tool", "kind", "count"),
    *("threshold", "hard", "action", "arm", "then_did", "feedback", "saved_calls"),
)
"""The columns of a listed row."""
_SHOWN: Final = {"threshold": "limit", "then_did": "then"}
"""The public names of columns whose names are reserved in SQL."""
_FLAGS: Final = ("begins", "hard")
TOLD: Final = ("finding", "loop", "action", "mended", "feedback")
"""The events that are kept, by their names."""
_NOTED: Final = {"mended": ("then_did", names.MENDED), "feedback": ("feedback", names.FEEDBACK)}
"""The column that an event sets, and the field with its value."""
_OFFERED: Final = ("kind", "tool", "model", "action")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS findings (
  id TEXT PRIMARY KEY, time REAL NOT NULL, loop TEXT NOT NULL, begins INTEGER NOT NULL DEFAULT 0,
  session TEXT NOT NULL, lane TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, dialect TEXT NOT NULL,
  tool TEXT NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL, threshold INTEGER NOT NULL, hard INTEGER NOT NULL,
  action TEXT NOT NULL, arm TEXT NOT NULL, then_did TEXT NOT NULL DEFAULT '', feedback TEXT NOT NULL DEFAULT '',
  saved_calls REAL NOT NULL DEFAULT 0, events TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS findings_time ON findings (time);
CREATE INDEX IF NOT EXISTS findings_lane ON findings (session, lane, time);
CREATE INDEX IF NOT EXISTS findings_loop ON findings (loop);
"""
_INSERT: Final = """
INSERT INTO findings (id, time, loop, session, lane, model, provider, dialect, tool, kind, count, threshold, hard,
  action, arm, saved_calls, events)
VALUES (:id, :time,
  coalesce((SELECT loop FROM findings WHERE session = :session AND lane = :lane AND time <= :time
    ORDER BY time DESC, rowid DESC LIMIT 1), :id),
  :session, :lane, :model, :provider, :dialect, :tool, :kind, :count, :threshold, :hard, :action, :arm, :saved_calls,
  :events)
ON CONFLICT (id) DO UPDATE SET action = excluded.action, saved_calls = max(saved_calls, excluded.saved_calls),
  events = excluded.events
"""
_BEGIN: Final = """
UPDATE findings SET loop = :id, begins = (id = :id)
WHERE session = :session AND lane = :lane AND time >= (SELECT time FROM findings WHERE id = :id) AND time < coalesce(
  (SELECT min(time) FROM findings WHERE session = :session AND lane = :lane AND begins AND id != :id
    AND time > (SELECT time FROM findings WHERE id = :id)), 9e18)
"""
"""Begin a loop: its findings are those of the lane up to the next beginning, which another process may have written
already."""


class WrongFileError(Exception):
    """Raised for an unusable file. The message says why."""


class FindingsTable:
    """The findings of one file, or of the memory of this process (`MEMORY`), for `keep_days` days, `most` at a time.

    Raises WrongFileError. May be used from any thread. Methods raise `sqlite3.Error` if the file cannot be used.
    """

    def __init__(self, path: str = MEMORY, *, keep_days: float = 30, most: int = MOST) -> None:
        self.path = path
        self._keep_s = keep_days * DAY_S
        self._most = most
        self._pruned = 0.0
        self._lock = Lock()
        self._connection = _open(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, told: Iterable[Mapping[str, Any]], now: float) -> None:
        """Write events in their order. Events that do not concern findings are ignored. `now`: Unix seconds."""
        with self._lock, _Transaction(self._connection):
            for fields in told:
                self._add(fields)
            if now - self._pruned >= PRUNE_S:
                self._pruned = now
                self._prune(now)

    def _add(self, fields: Mapping[str, Any]) -> None:
        event, id_ = str(fields.get(names.EVENT, "")), fields.get(names.FINDING_ID, "")
        if event not in TOLD or not id_:
            return
        if event == "loop":
            place = {"session": _session(fields), "lane": fields.get(names.LANE, "")}
            self._connection.execute(_BEGIN, {"id": id_, **place})
            return
        kept = self._kept(id_)
        if event == "finding":
            self._connection.execute(_INSERT, _row(fields) | {"id": id_, "events": _with(kept or {}, event, fields)})
        elif kept is not None:
            column, name = _NOTED.get(event, ("action", names.ACTION))
            values = (fields.get(name, ""), _with(kept, event, fields), id_)
            update = f"UPDATE findings SET {column} = ?, events = ? WHERE id = ?"  # noqa: S608 - the column is ours
            self._connection.execute(update, values)

    def _kept(self, id_: str) -> dict[str, Any] | None:
        """Return the events of a finding, by their names; None if the finding is unknown."""
        found = self._connection.execute("SELECT events FROM findings WHERE id = ?", (id_,)).fetchone()
        return None if found is None else _loaded(found[0])

    def _prune(self, now: float) -> None:
        """Delete rows that are too old, and the oldest ones if there are too many."""
        self._connection.execute("DELETE FROM findings WHERE time < ?", (now - self._keep_s,))
        (count,) = self._connection.execute("SELECT count(*) FROM findings").fetchone()
        if count > self._most:
            delete = "DELETE FROM findings WHERE id IN (SELECT id FROM findings ORDER BY time LIMIT ?)"
            self._connection.execute(delete, (count - self._most,))

    # What is asked.

    def listed(self, query: FindingsQuery) -> dict[str, Any]:
        """Return a page of rows, the total numbers of findings and loops, and the values to filter by."""
        where, values = _where(query)
        with self._lock:
            totals = "SELECT count(*), count(DISTINCT loop), coalesce(sum(saved_calls), 0) FROM findings WHERE "
            findings, loops, saved = self._connection.execute(totals + where, values).fetchone()
            return {
                "findings": findings,
                "loops": loops,
                "saved_calls": round(saved, 3),
                "page": query.page,
                "page_size": query.size,
                "rows": [*self._rows(query, query.size, query.page * query.size)],
                "values": {column: self._values(column, query) for column in _OFFERED},
                "oldest": self._connection.execute("SELECT min(time) FROM findings").fetchone()[0],
            }

    def every(self, query: FindingsQuery) -> list[dict[str, Any]]:
        """Return all rows of a query, without pages."""
        with self._lock:
            return [*self._rows(query, self._most, 0)]

    def events(self, finding_id: str) -> list[dict[str, Any]]:
        """Return the events of a finding in reading order; none if the finding is unknown."""
        with self._lock:
            kept = self._kept(finding_id) or {}
        return [kept[name] for name in TOLD if name in kept]

    def _rows(self, query: FindingsQuery, most: int, first: int) -> Iterator[dict[str, Any]]:
        where, values = _where(query)
        select = _OF_LOOPS if query.by_loop else "SELECT {columns} FROM findings WHERE {where}"
        columns = ", ".join(f"findings.{column}" for column in COLUMNS)
        way = "DESC" if query.falling else "ASC"
        order = f"ORDER BY {query.sort} {way}, time {way}, findings.rowid {way} LIMIT ? OFFSET ?"
        select = select.format(columns=columns, where=where)
        found = self._connection.execute(f"{select} {order}", [*values, most, first])
        heads = [_SHOWN.get(head[0], head[0]) for head in found.description]
        for row in found:
            shown = dict(zip(heads, row, strict=True))
            yield shown | {flag: bool(shown[flag]) for flag in _FLAGS}

    def _values(self, column: str, query: FindingsQuery) -> list[dict[str, Any]]:
        """Return the values of a column within the time of a query, the most frequent first."""
        where, values = _where(query, time_only=True)
        counted = f"SELECT {column}, count(*), count(DISTINCT loop) FROM findings WHERE {where}"  # noqa: S608 - ours
        found = self._connection.execute(f"{counted} GROUP BY 1 ORDER BY 2 DESC LIMIT ?", [*values, MOST_VALUES])
        return [{"value": value, "findings": count, "loops": loops} for value, count, loops in found]


_OF_LOOPS: Final = """
SELECT {columns}, loops.began, loops.findings, loops.actions FROM (
  SELECT loop, min(time) AS began, max(time) AS ended, count(*) AS findings, group_concat(DISTINCT action) AS actions
  FROM (SELECT loop, time, action FROM findings WHERE {where} ORDER BY time) GROUP BY loop
) AS loops JOIN findings ON findings.id = (
  SELECT id FROM findings WHERE loop = loops.loop AND time = loops.ended LIMIT 1)
"""
"""A row for each loop: its newest finding, its begin, its number of findings, and its actions."""


def _where(query: FindingsQuery, *, time_only: bool = False) -> tuple[str, list[Any]]:
    """Return the SQL condition of a query, and its values. Columns come from `CHOICES`."""
    parts, values = ["time >= ?"], [query.begin]
    if isfinite(query.end):
        parts.append("time < ?")
        values.append(query.end)
    rest: list[Any] = [*values]
    for column, chosen in () if time_only else query.chosen:
        parts.append(f"{column} IN ({', '.join('?' * len(chosen))})")
        rest += chosen
    return " AND ".join(parts), rest


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the row for a new finding."""
    return {
        "time": float(fields.get(names.TIME, 0)),
        "session": _session(fields),
        "lane": fields.get(names.LANE, ""),
        "model": fields.get(names.MODEL, ""),
        "provider": fields.get(names.PROVIDER, ""),
        "dialect": fields.get(names.DIALECT, ""),
        "tool": fields.get(names.TOOL, "") or UNNAMED,
        "kind": fields.get(names.KIND, ""),
        "count": int(fields.get(names.COUNT, 0)),
        "threshold": int(fields.get(names.THRESHOLD, 0)),
        "hard": int(fields.get(names.HARD, False)),
        "action": fields.get(names.ACTION, ""),
        "arm": fields.get(names.ARM, ""),
        "saved_calls": float(fields.get(names.SAVED_CALLS, 0)),
    }


def _session(fields: Mapping[str, Any]) -> str:
    return str(fields.get(names.SESSION, "-"))


def _with(kept: Mapping[str, Any], event: str, fields: Mapping[str, Any]) -> str:
    """Add an event to the events of a row. If it is too long, only its short fields are kept."""
    if len(dumps(fields)) > LONGEST:
        fields = {name: one for name, one in fields.items() if len(str(one)) <= names.LONGEST}
    return dumps({**kept, event: fields}).decode("utf-8", "replace")


def _loaded(events: str) -> dict[str, dict[str, Any]]:
    """Parse the events of a row. Checks everything, because anyone who can write the file can write anything."""
    with suppress(NotJSON):
        found = loads(events.encode("utf-8", "replace"))
        if isinstance(found, dict):
            return {name: read_fields(dumps(one)) for name, one in found.items() if name in TOLD}
    return {}


class _Transaction:
    """A transaction: either all writes of its block are kept, or none."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        """Begin the transaction, after those of other processes."""
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, error: object, *_: object) -> None:
        """End the transaction."""
        self._connection.execute("ROLLBACK" if error else "COMMIT")


def _open(path: str) -> sqlite3.Connection:
    """Connect to a file. A new file is readable only by its owner. Raises WrongFileError."""
    try:
        if path != MEMORY:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR))
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except OSError as error:
        raise WrongFileError(f"cannot be written ({error.strerror})") from None
    except sqlite3.Error as error:
        raise WrongFileError(f"cannot be opened ({error})") from None
    try:
        _prepare(connection)
    except sqlite3.Error as error:
        connection.close()
        raise WrongFileError(f"cannot be used ({error})") from None
    except WrongFileError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables if they are missing. Several processes may do this at the same time. Raises WrongFileError."""
    with _Transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version not in (0, VERSION):
            raise WrongFileError("is of another version of callfuse; name another file")
        if version == 0 and tables:
            raise WrongFileError("is a database of another program; name another file")
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    with suppress(sqlite3.OperationalError):  # another process has the file open, and sets the same mode
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
