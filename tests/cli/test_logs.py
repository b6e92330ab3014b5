"""The log lines of `callfuse serve`."""

import logging
from asyncio import CancelledError

import pytest

from callfuse.cli.serve import NoiseFilter, QueryFilter, log_config
from callfuse.config.serve import ServeSettings


def test_no_access_line_holds_a_query() -> None:
    """Some vendors take their key in the query, so an access line ends before it; other records stay as they are."""
    line = '%s - "%s %s HTTP/%s" %d'
    access = logging.LogRecord("uvicorn.access", 20, "", 0, line, ("a:1", "GET", "/v1?key=s3cret", "1.1", 200), None)
    other = logging.LogRecord("callfuse", 20, "", 0, "a %s", ("b?c",), None)
    assert QueryFilter().filter(access)
    assert QueryFilter().filter(other)
    assert access.getMessage() == 'a:1 - "GET /v1 HTTP/1.1" 200'
    assert other.getMessage() == "a b?c"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("Unsupported upgrade request.", False),
        ("No supported WebSocket library detected. Please use ...", False),
        ("Invalid HTTP request received.", True),
    ],
)
def test_advice_on_websockets_is_dropped(message: str, kept: bool) -> None:
    """The server's hint to install a library would mislead: there is nothing to install."""
    assert NoiseFilter().filter(logging.LogRecord("uvicorn.error", 30, "", 0, message, (), None)) is kept


@pytest.mark.parametrize(("error", "kept"), [(CancelledError("cut"), False), (ValueError("a bug"), True)])
def test_a_cut_stream_has_no_traceback(error: BaseException, kept: bool) -> None:
    """Streams that outlast the shutdown are cut as announced; any other exception is told in full."""
    raised = (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", 40, "", 0, "Exception in ASGI application", (), raised)
    assert NoiseFilter().filter(record) is kept


@pytest.mark.parametrize(
    ("level", "own", "server"),
    [("debug", "DEBUG", "INFO"), ("info", "INFO", "WARNING"), ("error", "ERROR", "WARNING")],
)
def test_callfuse_logs_at_the_chosen_level(level: str, own: str, server: str) -> None:
    """The level is callfuse's; the server speaks of its steps at debug only."""
    loggers = log_config(ServeSettings.model_validate({"log_level": level}))["loggers"]
    assert (loggers["callfuse"]["level"], loggers["uvicorn.error"]["level"]) == (own, server)
