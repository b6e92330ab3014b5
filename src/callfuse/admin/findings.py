"""Serve the endpoints of findings: a list of findings or loops, and everything known about one.

| path | |
|---|---|
| `findings` | findings, or with `by=loop` loops, by time, kind, tool, model, session and action, as JSON or CSV |
| `findings/detail` | one finding, by its id: its session with the call, in the form of `activity/session` |
"""

import csv
import io
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from callfuse.admin.access import Access
from callfuse.admin.live import Endpoint, LivePage
from callfuse.admin.queries import BadQuery, NoStore, changeable
from callfuse.asgi import CallFuseMiddleware
from callfuse.findings import FindingsKeeper, FindingsQuery, FindingsTable, FindingsUnavailable, read_query
from callfuse.observe.activity import Activity

COLUMNS: Final = (
    *("id", "time", "loop", "session", "lane", "model", "provider", "dialect", "tool", "kind", "count", "limit"),
    *("hard", "action", "arm", "then", "feedback", "saved_calls"),
)
"""The columns of the CSV."""
OF_LOOPS: Final = ("began", "findings", "actions")
"""Further columns if rows are loops."""
_TIMES: Final = frozenset({"time", "began"})
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""The beginnings of cells that a spreadsheet would run as formulas."""


class UnknownFindingId(BadQuery):
    """Raised for an unknown id."""

    status = 404


class FindingsPage:
    """The endpoints of the findings. `endpoints`: each by its path. `live`: knows the sessions of recent findings."""

    def __init__(self, middleware: CallFuseMiddleware, access: Access, keeper: FindingsKeeper, live: LivePage) -> None:
        self._middleware = middleware
        self._access = access
        self._keeper = keeper
        self._live = live
        self.endpoints: Mapping[str, Endpoint] = {"/findings": self._list, "/findings/detail": self._detail}

    async def _list(self, request: Request) -> Response:
        try:
            query = read_query(request.query_params.multi_items(), time.time())
        except ValueError as wrong:
            raise BadQuery(str(wrong)) from None
        try:
            if query.format == "csv":
                return await self._as_csv(query)
            listed = await self._keeper.ask(lambda table: table.listed(query))
        except FindingsUnavailable as problem:
            raise NoStore(str(problem)) from None
        keeper = self._keeper
        kept = {"in": keeper.place, "days": keeper.keep_days, "dropped": keeper.dropped, "alone": keeper.alone}
        by = "loop" if query.by_loop else "finding"
        return JSONResponse({"now": time.time(), "from": query.begin, "by": by, **listed, "kept": kept})

    async def _as_csv(self, query: FindingsQuery) -> Response:
        body = await self._keeper.ask(lambda table: _csv(query, table))
        name = f"callfuse-{'loops' if query.by_loop else 'findings'}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(body, media_type="text/csv; charset=utf-8", headers=headers)

    async def _detail(self, request: Request) -> Response:
        finding_id = request.query_params.get("id", "")
        live = await self._live.finding(request, finding_id)
        if live is not None:
            return live
        try:
            told = await self._keeper.ask(lambda table: table.events(finding_id))
        except FindingsUnavailable as problem:
            raise NoStore(str(problem)) from None
        found = _session_of(told)
        if found is None:
            raise UnknownFindingId("no finding with this id is kept: the id is wrong, or the finding is too old")
        known = await changeable(self._middleware, self._access, found["session"])
        return JSONResponse({**found, **known, "is_kept": True})


def _session_of(told: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Build a session with only the call of a finding, in the form of the live page; None without events."""
    activity, session = Activity("full"), ""
    for fields in told:
        session = session or str(fields.get("gen_ai.conversation.id", "-"))
        activity.take_fields(fields, is_finished=True)
    return activity.session(session) if session else None


def _csv(query: FindingsQuery, table: FindingsTable) -> str:
    """Write all rows as CSV, with times in ISO 8601."""
    written = io.StringIO(newline="")
    columns = (*COLUMNS, *OF_LOOPS) if query.by_loop else COLUMNS
    writer = csv.writer(written)
    writer.writerow(columns)
    writer.writerows([_cell(column, row[column]) for column in columns] for row in table.every(query))
    return written.getvalue()


def _cell(column: str, value: Any) -> str | int | float:
    """Return the value of a cell, in a form that spreadsheets do not read as a formula."""
    if column in _TIMES:
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value if isinstance(value, int | float) else str(value)
