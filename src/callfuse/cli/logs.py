"""Logging of `callfuse serve`: one line a record on stderr, callfuse at the chosen level, the rest from WARNING on.

What it gives is the dict that `logging.config.dictConfig` takes; uvicorn applies it in every process that it starts.
No request's query is ever logged: some vendors take their key there.
"""

import logging
from asyncio import CancelledError
from typing import Any

LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class WithoutQuery(logging.Filter):
    """Cuts the query from uvicorn's access lines, whose arguments are address, method, path, version and status."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, with its path as far as the question mark."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            address, method, path, version, status = record.args
            record.args = (address, method, str(path).partition("?")[0], version, status)
        return True


class WithoutNoise(logging.Filter):
    """Drops what uvicorn says of things that are as they should be.

    That is its advice to install a WebSocket library, where callfuse answers such requests over HTTP on purpose, and
    the traceback of each stream that is cut at the end of `shutdown_timeout_s`, which a line of its own announces.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every other record."""
        cut = record.exc_info is not None and isinstance(record.exc_info[1], CancelledError)
        advice = str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))
        return not (cut or advice)


def log_config(level: str) -> dict[str, Any]:
    """The configuration for a `log_level`; at debug uvicorn's own steps and each request are logged as well."""
    detail = "INFO" if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": LINE}},
        "filters": {
            "without_query": {"()": WithoutQuery},
            "without_noise": {"()": WithoutNoise},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "callfuse": {"level": level.upper()},
            "uvicorn.error": {"level": detail, "filters": ["without_noise"]},
            "uvicorn.access": {"level": detail, "filters": ["without_query"]},
        },
    }
