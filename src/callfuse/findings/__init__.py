"""What was found, kept beyond a restart, and asked for by time, kind, tool, model, session and action.

`keeper.py` takes the events, `table.py` keeps them in SQLite, `query.py` reads what somebody asks for.
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
