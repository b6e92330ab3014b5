"""Write log records as JSON lines. Values in `extra` get the names of `observe/fields.py`.

{"time": "2026-03-01T12:00:00.123Z", "level": "WARNING", "logger": "callfuse", "message": "Tool call loop detected ...",
"gen_ai.conversation.id": "abc", "gen_ai.tool.name": "search", "callfuse.finding.id": "5f0c...", ...}
"""

import json
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TextIO

import orjson

from callfuse.model.secrets import star_secrets
from callfuse.observe.fields import OF_LOG

LONGEST: Final = 20_000
"""The most characters of a message, and of a traceback. Records are lines of ASCII: JSON escapes the rest."""
_ENCODER: Final = json.JSONEncoder(default=str)
_NAMES: Final = tuple(OF_LOG.items())
_UNKNOWN: Final = ("", "-")
OWN: Final = "callfuse"
"""The logger whose records have fields, as do those of its children."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. Secrets of known forms are masked in what other packages log, too."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, without a newline."""
        if record.name.partition(".")[0] == OWN:  # callfuse masks secrets before it logs
            line = _head(record.created, record.levelname, record.name, record.getMessage()[:LONGEST])
            given = record.__dict__
            line |= {name: value for key, name in _NAMES if (value := given.get(key, "")) not in _UNKNOWN}
        else:
            message = star_secrets(record.getMessage(), LONGEST)
            line = _head(record.created, record.levelname, record.name, message)
        if record.exc_info:
            line["exception"] = star_secrets(self.formatException(record.exc_info), LONGEST)
        return _encode(line)


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, each as a line of JSON."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.setFormatter(JsonFormatter())

    def write(self, logger: str, level: int, message: str, fields: Mapping[str, object]) -> None:
        """Write the line that a record with these fields would have. The fields are in the order of `OF_LOG`. Raises
        OSError if writing to the stream fails."""
        line = _head(time.time(), logging.getLevelName(level), logger, message[:LONGEST])
        for key, value in fields.items():
            if key in OF_LOG and value not in _UNKNOWN:
                line[OF_LOG[key]] = value
        text = _encode(line) + self.terminator
        self.acquire()
        try:
            self.stream.write(text)
            self.stream.flush()
        finally:
            self.release()


def only_handler(logger: logging.Logger, level: int) -> JsonHandler | None:
    """Return the `JsonHandler` if it is the only one that handles records of this level, unchanged; else None."""
    only: logging.Handler | None = None
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            if only is not None:
                return None
            only = handler
        at = at.parent if at.propagate else None
    if not isinstance(only, JsonHandler) or only.filters or logger.filters or only.level > level:
        return None
    return only if logging.getLogRecordFactory() is logging.LogRecord else None


def _head(created: float, level: str, logger: str, message: str) -> dict[str, object]:
    """Return the beginning of every line. `created`: Unix seconds."""
    second, millisecond = divmod(int(1000 * created), 1000)
    return {"time": f"{_moment(second)}.{millisecond:03}Z", "level": level, "logger": logger, "message": message}


@lru_cache(1)
def _moment(second: int) -> str:
    """Format a second since the epoch."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _encode(line: Mapping[str, object]) -> str:
    """Encode an object as one line of ASCII."""
    try:
        encoded = orjson.dumps(line, default=str)  # a third of the time, but it writes UTF-8
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return _ENCODER.encode(line)
    return encoded.decode() if encoded.isascii() else _ENCODER.encode(line)
