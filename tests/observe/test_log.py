"""Log lines: the finding as prescribed, its fields beside it, and never a credential."""

import asyncio
import dataclasses
import logging
from typing import Any

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.observe import log
from callfuse.observe.events import NOWHERE, CourseMended, Event, FeedbackGiven, Where
from callfuse.observe.log import LogSink
from callfuse.policy.ladder import OnLoopError, Verdict
from callfuse.policy.settings import Rung
from tests.guard.driving import each_kit
from tests.support.asgi import Headers, drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, reply
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply, play

LONG = '{"query": "' + "zebra " * 30 + '"}'


def verdict(rung: Rung | None = Rung.BLOCK, *, first: bool = True, arguments: Any = LONG) -> Verdict:
    """A finding in a call with long arguments."""
    call = ToolCall("id", "search", arguments)
    return Verdict(call, Finding("repeat", "search", call.signature, 4, 3, 300.0, False), rung, 1, first)


def told(
    caplog: pytest.LogCaptureFixture, given: Verdict, level: int = logging.DEBUG, **more: Any
) -> list[logging.LogRecord]:
    """What is logged of a verdict."""
    with caplog.at_level(level, "callfuse"):
        log.finding(given, session="session-1", model="gpt-x", backend="openai", dialect="openai-chat", **more)
    return caplog.records


def test_the_line(caplog: pytest.LogCaptureFixture) -> None:
    """Word for word, with the first fifty characters of the signature."""
    (record,) = told(caplog, verdict(), logging.INFO)
    shown = f"search:{LONG}"[:50]
    assert record.getMessage() == (
        "Tool call loop detected in session session-1: tool=search, repeats=4/3, window=300s, model=gpt-x, "
        f"backend=openai, action=block, signature={shown}..., kind=repeat"
    )
    assert record.levelno == logging.WARNING
    assert record.name == "callfuse"


def test_secrets_are_starred(caplog: pytest.LogCaptureFixture) -> None:
    """In the line of a finding, in its field and in the DEBUG line with all arguments."""
    arguments = '{"token": "abc", "q": "' + "x" * 60 + ' sk-proj-abcd1234"}'
    records = told(caplog, verdict(arguments=arguments))
    assert records[0].__dict__["signature"] == f"search:{arguments}".replace("abc", "***", 1)[:50]
    assert all("abc" not in record.getMessage() for record in records)
    assert "***" in records[1].getMessage()


def test_the_fields_stand_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    """For whoever collects records: under the names of the line."""
    (record,) = told(caplog, verdict(), logging.INFO)
    fields = record.__dict__
    assert {
        key: fields[key] for key in ("session_id", "tool", "count", "max_repeats", "model", "backend", "action")
    } == {
        "session_id": "session-1",
        "tool": "search",
        "count": 4,
        "max_repeats": 3,
        "model": "gpt-x",
        "backend": "openai",
        "action": "block",
    }
    assert (fields["kind"], fields["dialect"], fields["ttl"]) == ("repeat", "openai-chat", "300")
    assert fields["signature"] == f"search:{LONG}"[:50]


@pytest.mark.parametrize(
    ("rung", "action"), [(Rung.OBSERVE, "observe"), (Rung.WARN, "warn"), (Rung.STEER, "steer"), (None, "allow")]
)
def test_the_action_is_the_rung(caplog: pytest.LogCaptureFixture, rung: Rung | None, action: str) -> None:
    """Or `allow`, where a callback or a server tool let the call go."""
    (record,) = told(caplog, verdict(rung), logging.INFO)
    assert f"action={action}," in record.getMessage()


def test_a_rung_again_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """WARNING once a streak and rung, then INFO."""
    (record,) = told(caplog, verdict(Rung.STEER, first=False), logging.INFO)
    assert record.levelno == logging.INFO


def test_every_block_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The first one after a callback's steer, and those that follow in the streak; each with the lane's count."""
    (record,) = told(caplog, verdict(first=False), logging.INFO, blocks=7)
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(", kind=repeat, blocks=7")
    assert record.__dict__["blocks"] == 7


def test_the_lane_stands_where_there_may_be_several(caplog: pytest.LogCaptureFixture) -> None:
    """With who has named the session; one that only its conversation identifies is its own lane."""
    digest = "79f0e35d6532cc5810a4ef34e94a0692"
    (named,) = told(caplog, verdict(), logging.INFO, lane=f"agent.7.{digest}", source="x-session-id")
    assert named.getMessage().endswith(", kind=repeat, lane=agent.7.79f0e35d, named by x-session-id")
    assert named.__dict__["lane"] == f"agent.7.{digest}"
    caplog.clear()
    (nameless,) = told(caplog, verdict(), logging.INFO, lane="session-1", source="fingerprint")
    assert nameless.getMessage().endswith(", kind=repeat")


def test_the_id_stands_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    """By it people rate the finding, and find it on the page."""
    (record,) = told(caplog, verdict(), logging.INFO, finding_id="f1", blocks=7)
    assert record.getMessage().endswith(", kind=repeat, finding_id=f1, blocks=7")
    assert record.__dict__["finding_id"] == "f1"


def test_the_full_signature_is_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    """Digest and arguments stand in a DEBUG line and in no other."""
    line, detail = told(caplog, verdict())
    assert detail.levelno == logging.DEBUG
    assert verdict().call.signature.hex() in detail.getMessage()
    assert LONG in detail.getMessage()
    assert LONG not in line.getMessage() + str(line.__dict__)


@pytest.mark.parametrize("arguments", ['{"query": "zebra"}', {"query": "zebra"}])
def test_arguments_of_any_form_are_shown(caplog: pytest.LogCaptureFixture, arguments: Any) -> None:
    """Raw text, or the JSON of what came parsed."""
    line, detail = told(caplog, verdict(arguments=arguments))
    for record in (line, detail):
        assert 'search:{"query":"zebra"}' in record.getMessage().replace(": ", ":")


SECRETS: Headers = (
    (b"content-type", b"application/json"),
    (b"authorization", b"Bearer secret-one"),
    (b"x-api-key", b"secret-two"),
    (b"api-key", b"secret-three"),
    (b"x-goog-api-key", b"secret-four"),
    (b"cookie", b"secret-five"),
)


@each_kit
@pytest.mark.parametrize("ladder", ["observe", "warn", "block", "chance_then_block"])
def test_no_credential_is_logged(kit: DialectKit, caplog: pytest.LogCaptureFixture, ladder: str) -> None:
    """At no level, whether all goes well, the second answer fails or the first one is broken."""
    first, second = reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True)
    request = ask(kit, spin(4), stream=True, headers=SECRETS)
    with caplog.at_level(logging.DEBUG):
        for script in ((first, second), (first, Reply((b"{}",), 500)), (Reply((*first.chunks[:1], b"data: {\n\n")),)):
            asyncio.run(drive(guard(play(*script), ladder), request))
    assert caplog.records
    for record in caplog.records:
        assert "secret" not in record.getMessage() + str(record.__dict__)


def test_feedback_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """At INFO; what the model did after it was told at DEBUG. Names are made safe."""
    caplog.set_level(logging.DEBUG, logger="callfuse")
    sink = LogSink()
    sink.take(FeedbackGiven("5f0c", "false_positive", "repeat", "sea\nrch"))
    sink.take(CourseMended(NOWHERE, "5f0c", "changed"))
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", r"Feedback on finding 5f0c (repeat of sea\nrch): false_positive"),
        ("DEBUG", "After finding 5f0c in session -: changed"),
    ]


HOSTILE = "KeyError: a\nERROR forged\x1b[2J\u202e sk-proj-abcdefgh12345678 " + "x" * 10_000
"""What an error's message may quote."""


LINED: list[type[Event]] = sorted(LogSink.kinds, key=lambda kind: kind.name)


def hostile(kind: type[Event]) -> Event:
    """An event of a kind with such a text wherever it has one."""
    call = ToolCall(HOSTILE, HOSTILE, HOSTILE)
    found = Finding("repeat", HOSTILE, call.signature, 4, 3, 300.0, False)
    values: dict[str, Any] = {
        "where": Where("-", "", "", HOSTILE, "openai", "openai-chat"),
        "verdict": Verdict(call, found, Rung.BLOCK, 1),
        "call": call,
        "error": OnLoopError(HOSTILE),
        "session": "-",
        "arm": "guarded",
    }
    given = {one.name: HOSTILE for one in dataclasses.fields(kind) if one.type is str} | values
    numbers = {one.name: 1 for one in dataclasses.fields(kind) if one.type in (int, bool, float)}
    return kind(**{one.name: (given | numbers)[one.name] for one in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", LINED, ids=lambda kind: kind.name)
def test_no_line_is_more_than_a_line(kind: type[Event], caplog: pytest.LogCaptureFixture) -> None:
    """Nor steers a terminal, nor has a secret, nor grows with what it quotes; at DEBUG it may have all of a call."""
    caplog.set_level(logging.INFO, logger="callfuse")
    LogSink().take(hostile(kind))
    for record in caplog.records:
        line = record.getMessage()
        assert line.isprintable()
        assert "sk-proj" not in line + str(record.__dict__.get("signature", ""))
        assert len(line) < 2000
