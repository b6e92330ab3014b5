"""Log lines as JSON: an object a record, with what stands beside the line under the names of `observe/fields.py`.

{"time": "2026-03-01T12:00:00.123Z", "level": "WARNING", "logger": "callfuse", "message": "Tool call loop detected ...",
"gen_ai.conversation.id": "abc", "gen_ai.tool.name": "search", "callfuse.finding.id": "5f0c...", ...}
"""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from callfuse.model.secrets import star_secrets
from callfuse.observe.fields import OF_LOG

LONGEST: Final = 20_000
"""Characters of a message, and of a traceback; each in one line of ASCII, as JSON escapes the rest."""
_ENCODER: Final = json.JSONEncoder(default=str)
OWN: Final = "callfuse"
"""The logger whose records, and those of whose children, have fields."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. Secrets of known shapes are starred in what other packages log, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
        }
        if record.name.partition(".")[0] == OWN:  # whose lines are starred where they are made
            line["message"] = record.getMessage()[:LONGEST]
            given = record.__dict__
            line |= {OF_LOG[key]: given[key] for key in OF_LOG if given.get(key, "") not in ("", "-")}
        else:
            line["message"] = star_secrets(record.getMessage(), LONGEST)
        if record.exc_info:
            line["exception"] = star_secrets(self.formatException(record.exc_info), LONGEST)
        return _ENCODER.encode(line)
