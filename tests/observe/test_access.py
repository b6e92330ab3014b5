"""The access line: one for each exchange, whatever became of it, and never a query or a credential."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.cli.serve import log_config
from callfuse.config.serve import ServeSettings
from callfuse.observe.access import ACCESS
from callfuse.observe.json_lines import JsonFormatter
from callfuse.observe.pages import page_of
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import settings
from tests.support.kits import KITS
from tests.support.meeting import ask, framewise
from tests.support.model import Answer
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
NAMED: Headers = (*JSON_REQUEST, (b"x-session-id", b"abc"))
TALK = saying("Good day.", tag="talk")


@pytest.fixture
def access(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The logger has the level that `callfuse serve` gives it."""
    with caplog.at_level(logging.INFO, ACCESS):
        yield caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The access lines."""
    return [record for record in caplog.records if record.name == ACCESS]


async def exchange(*answers: Answer, times: int = 1, ladder: str = "block", **more: Any) -> None:
    """One exchange of a session with a name."""
    guarded = CallFuseMiddleware(play(*(framewise(CHAT, one) for one in answers)), settings(ladder, **more))
    await drive(guarded, ask(CHAT, spin(times), stream=True, headers=NAMED))


async def test_a_healthy_exchange_has_a_line(access: pytest.LogCaptureFixture) -> None:
    """With all that is known of it."""
    await exchange(elsewhere())
    (record,) = lines(access)
    assert record.levelno == logging.INFO
    lane, ms = record.__dict__["lane"], record.__dict__["ms"]
    assert len(lane) == 32
    assert record.getMessage() == (
        f"openai-chat 200, model=gpt-test, session=abc, lane={lane[:8]}, watched, calls=1, action=-, {ms} ms"
    )


async def test_a_session_without_a_name_is_its_only_lane(access: pytest.LogCaptureFixture) -> None:
    """So the line names it once."""
    guarded = CallFuseMiddleware(play(framewise(CHAT, TALK)), settings())
    await drive(guarded, ask(CHAT, spin(1), stream=True))
    (record,) = lines(access)
    assert record.__dict__["lane"] == record.__dict__["session_id"]
    assert f", session={record.__dict__['lane']}, watched, " in record.getMessage()


async def test_what_was_done_stands_in_the_line(access: pytest.LogCaptureFixture) -> None:
    """And how long bytes were held."""
    await exchange(again(), TALK, times=2, ladder="steer")
    (record,) = lines(access)
    held = record.__dict__["held_ms"]
    assert ", guarded, calls=1, action=steer, " in record.getMessage()
    assert record.getMessage().endswith(f" ms, held {held} ms")


async def test_why_not_stands_in_the_line(access: pytest.LogCaptureFixture) -> None:
    """Where nothing is known of the session, there is a dash."""
    guarded = CallFuseMiddleware(play(framewise(CHAT, TALK)), settings())
    await drive(guarded, Request("/v1/chat/completions", b"no json", query=b"key=s3cret"))
    (record,) = lines(access)
    assert record.getMessage().startswith(
        "openai-chat 200, model=-, session=-, not guarded: request not JSON, calls=0, action=-, "
    )
    assert "s3cret" not in str(record.__dict__)


async def test_how_it_ended_stands_in_the_line(access: pytest.LogCaptureFixture) -> None:
    """If not well."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise LookupError

    await drive(CallFuseMiddleware(app, settings()), ask(CHAT, spin(1), stream=True))
    (record,) = lines(access)
    assert record.getMessage().startswith("openai-chat -, ")
    assert ", watched, error, calls=0, " in record.getMessage()


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
async def test_a_host_has_none_unless_it_wants_them(caplog: pytest.LogCaptureFixture, level: int) -> None:
    """An INFO level of the root logger, or of callfuse's, is for what is found."""
    with caplog.at_level(level), caplog.at_level(level, "callfuse"):
        await exchange(elsewhere())
    assert lines(caplog) == []


@pytest.mark.parametrize("foreign", ["a\nb\x1b[0m", "m" * 5000, "sk-proj-abcdefgh12345678"])
async def test_foreign_texts_are_safe(access: pytest.LogCaptureFixture, foreign: str) -> None:
    """The model's name is bounded, printable, and starred if it is a secret."""
    body = json.dumps(json.loads(ask(CHAT, spin(1), stream=True).body) | {"model": foreign}).encode()
    guarded = CallFuseMiddleware(play(framewise(CHAT, TALK)), settings())
    await drive(guarded, Request("/v1/chat/completions", body))
    (record,) = lines(access)
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 500
    assert "abcdefgh" not in str(record.__dict__)


async def test_a_line_as_json(access: pytest.LogCaptureFixture) -> None:
    """Its fields under the names of one file; what is not known is left out."""
    await exchange(elsewhere())
    (record,) = lines(access)
    found = json.loads(JsonFormatter().format(record))
    assert found.pop("time").endswith("Z")
    assert found.pop("callfuse.ms") >= found.pop("callfuse.first_byte_ms") >= 0
    assert 0 <= found.pop("callfuse.before_ms") < 10_000
    assert found == {
        "level": "INFO",
        "logger": "callfuse.access",
        "message": record.getMessage(),
        "gen_ai.conversation.id": "abc",
        "callfuse.session.source": "x-session-id",
        "callfuse.lane": record.__dict__["lane"],
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-test",
        "callfuse.dialect": "openai-chat",
        "http.response.status_code": 200,
        "callfuse.mode": "watched",
        "callfuse.ending": "complete",
        "callfuse.calls": 1,
        "callfuse.held_ms": 0,
        "callfuse.asked_ms": 0,
        "callfuse.route": "/",
    }


async def test_a_finding_as_json(access: pytest.LogCaptureFixture) -> None:
    """With its id, its tool and its kind."""
    await exchange(again(), times=2)
    (record,) = [one for one in access.records if "loop detected" in one.getMessage()]
    found = json.loads(JsonFormatter().format(record))
    assert (found["level"], found["gen_ai.tool.name"], found["callfuse.action"]) == ("WARNING", "search", "block")
    assert found["callfuse.finding.id"] == record.__dict__["finding_id"] != ""
    assert (found["callfuse.finding.kind"], found["callfuse.finding.count"]) == ("repeat", 3)
    assert found["callfuse.finding.url"] == page_of("repeat")


def test_any_record_is_one_line_of_ascii() -> None:
    """With its traceback, bounded; secrets of known shapes are starred; others' fields are not read."""
    error = ValueError("token=abcdefgh\n" + "x" * 100_000)
    given = (ValueError, error, None)
    message = "größe\n%s \ud800"
    record = logging.LogRecord("uvicorn.error", 40, "", 0, message, ("sk-proj-abcdefgh12345678",), given)
    record.__dict__["model"] = "theirs"
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert "\n" not in line
    assert "abcdefgh" not in line
    found = json.loads(line)
    assert set(found) == {"time", "level", "logger", "message", "exception"}
    assert len(found["exception"]) <= 20_000


@pytest.mark.parametrize(
    ("given", "level"),
    [({}, "INFO"), ({"access_log": "off"}, "WARNING"), ({"log_level": "error"}, "ERROR")],
)
def test_serve_gives_the_logger_a_level(given: dict[str, str], level: str) -> None:
    """On by default; below callfuse's own level there is none."""
    assert log_config(ServeSettings.model_validate(given))["loggers"][ACCESS] == {"level": level}


@pytest.mark.parametrize(("log_format", "key"), [("text", "format"), ("JSON", "()")])
def test_serve_chooses_the_format(log_format: str, key: str) -> None:
    """For every logger."""
    made = log_config(ServeSettings.model_validate({"log_format": log_format}))
    assert list(made["formatters"]["line"]) == [key]
