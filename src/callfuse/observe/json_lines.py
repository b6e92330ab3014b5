"""Log lines as JSON: an object a record, with what stands beside the line under the names of `observe/fields.py`.

{"time": "2026-03-01T12:00:00.123Z", "level": "WARNING", "logger": "callfuse", "message": "Tool call loop detected ...",
"gen_ai.conversation.id": "abc", "gen_ai.tool.name": "search", "callfuse.finding.id": "5f0c...", ...}
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import orjson

from callfuse.model.secrets import star_secrets
from callfuse.observe.fields import OF_LOG

LONGEST: Final = 20_000
"""Characters of a message, and of a traceback; each in one line of ASCII, as JSON escapes the rest."""
_ENCODER: Final = json.JSONEncoder(default=str)
_NAMES: Final = tuple(OF_LOG.items())
_UNKNOWN: Final = ("", "-")
OWN: Final = "callfuse"
"""The logger whose records, and those of whose children, have fields."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. Secrets of known shapes are starred in what other packages log, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        second, millisecond = divmod(int(1000 * record.created), 1000)
        line: dict[str, object] = {
            "time": f"{_moment(second)}.{millisecond:03}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        if record.name.partition(".")[0] == OWN:  # whose lines are starred where they are made
            line["message"] = record.getMessage()[:LONGEST]
            given = record.__dict__
            line |= {name: value for key, name in _NAMES if (value := given.get(key, "")) not in _UNKNOWN}
        else:
            line["message"] = star_secrets(record.getMessage(), LONGEST)
        if record.exc_info:
            line["exception"] = star_secrets(self.formatException(record.exc_info), LONGEST)
        return _encode(line)


@lru_cache(1)
def _moment(second: int) -> str:
    """A second since the epoch as it is written."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _encode(line: Mapping[str, object]) -> str:
    """An object as one line of ASCII."""
    with suppress(TypeError):  # a lone surrogate, or an integer beyond 64 bits
        encoded = orjson.dumps(line, default=str)  # a third of the time, but it writes UTF-8
        if encoded.isascii():
            return encoded.decode()
    return _ENCODER.encode(line)
