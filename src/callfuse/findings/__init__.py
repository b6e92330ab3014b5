"""Keep findings beyond a restart, and query them by time, kind, tool, model, session and action.

`keeper.py` takes the events, `table.py` keeps them in SQLite, `query.py` parses queries.
"""

from callfuse.findings.keeper import FindingsKeeper, FindingsUnavailable, check_path, keep_findings
from callfuse.findings.query import FindingsQuery, read_query
from callfuse.findings.table import FindingsTable

__all__ = [
    "FindingsKeeper",
    "FindingsQuery",
    "FindingsTable",
    "FindingsUnavailable",
    "check_path",
    "keep_findings",
    "read_query",
]
