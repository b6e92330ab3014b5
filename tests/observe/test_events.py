"""Every event is documented, and tells what may be shown under the names of one file."""

import inspect
import re
from pathlib import Path

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.observe import events, fields
from callfuse.observe.events import (
    ActionTaken,
    CallbackFailed,
    CallSeen,
    Event,
    ExchangeEnded,
    FailedOpen,
    FindingSeen,
    FuseReset,
    ResultSeen,
    SettingsChanged,
    Where,
    new_finding_id,
)
from callfuse.observe.fields import fields_of
from callfuse.observe.pages import page_of
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import Rung

PAGE = Path(__file__).parents[2] / "docs" / "observing.md"
KINDS = [one for _, one in inspect.getmembers(events, inspect.isclass) if issubclass(one, Event) and one is not Event]
WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")
CALL = ToolCall("call_1", "search", '{"token": "abc", "query": "zebra"}', "web")


def verdict(call: ToolCall = CALL) -> Verdict:
    """A finding in a call."""
    finding = Finding("repeat", call.name, call.signature, 4, 3, 300.0, False, previous="nothing found")
    return Verdict(call, finding, Rung.BLOCK, 1, finding_id="0123456789abcdef")


def test_every_event_is_documented() -> None:
    """With its name, and none is that does not exist."""
    section = PAGE.read_text().partition("## Events")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(rows) == sorted((kind.__name__, kind.name) for kind in KINDS)


def test_names_are_unique() -> None:
    """Each kind has its own."""
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_a_finding_under_its_names() -> None:
    """Those of OpenTelemetry where it has them."""
    assert fields_of(FindingSeen(WHERE, verdict(), 2)) == {
        "callfuse.event": "finding",
        "gen_ai.conversation.id": "abc",
        "callfuse.session.source": "x-session-id",
        "callfuse.lane": "main.f00",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "callfuse.dialect": "openai-chat",
        "gen_ai.tool.name": "web.search",
        "gen_ai.tool.call.id": "call_1",
        "callfuse.signature": CALL.signature.hex(),
        "callfuse.finding.id": "0123456789abcdef",
        "callfuse.finding.kind": "repeat",
        "callfuse.finding.count": 4,
        "callfuse.finding.threshold": 3,
        "callfuse.finding.window_seconds": 300.0,
        "callfuse.finding.hard": False,
        "callfuse.finding.confidence": 1.0,
        "callfuse.action": "block",
        "callfuse.request_tokens": 0,
        "callfuse.request_cost": 0.0,
        "callfuse.first": True,
        "callfuse.finding.url": page_of("repeat"),
        "callfuse.blocks": 2,
        "callfuse.again": False,
    }


def test_an_exchange_under_its_names() -> None:
    """What is not known is left out."""
    where = Where("-", "", "", "", "openai", "openai-chat")
    ended = ExchangeEnded(where, "passed", "complete", "no tools", 200, 0, "", 1.5, 0.0)
    assert fields_of(ended) == {
        "callfuse.event": "exchange",
        "gen_ai.provider.name": "openai",
        "callfuse.dialect": "openai-chat",
        "callfuse.mode": "passed",
        "callfuse.ending": "complete",
        "callfuse.cause": "no tools",
        "http.response.status_code": 200,
        "callfuse.calls": 0,
        "callfuse.seconds": 1.5,
        "callfuse.held_seconds": 0.0,
        "callfuse.asked_seconds": 0.0,
        "callfuse.before_seconds": 0.0,
        "callfuse.first_byte_seconds": 0.0,
        "callfuse.route": "/",
    }


def test_nothing_of_arguments_and_results_is_told() -> None:
    """Nor of an error's message, which may quote them."""
    for event in (
        FindingSeen(WHERE, verdict()),
        CallSeen(WHERE, CALL, "none"),
        CallbackFailed(ValueError("zebra")),
        FailedOpen("ValueError while guarding: invalid literal: 'zebra'"),
        ActionTaken(WHERE, "id", "block", True, told="it was nothing found for zebra"),
        ResultSeen(WHERE, "call_1", CALL.signature, Outcome(b"", OutcomeKind.OK, "nothing found for zebra")),
    ):
        said = str(fields_of(event))
        assert "zebra" not in said
        assert "nothing found" not in said
    assert fields_of(CallbackFailed(ValueError("zebra")))["error.type"] == "ValueError"
    assert fields_of(FailedOpen("ValueError while guarding: 'zebra'"))["callfuse.cause"] == "ValueError while guarding"


@pytest.mark.parametrize("foreign", ["x" * 10_000, "a\x1b[0m\nb", "sk-proj-abcdefgh12345678"])
def test_foreign_texts_are_safe(foreign: str) -> None:
    """Bounded, printable, secrets starred."""
    where = WHERE._replace(model=foreign)
    call = ToolCall(foreign, foreign, "{}")
    for value in fields_of(CallSeen(where, call, "none")).values():
        shown = str(value)
        assert len(shown) <= 2 * fields.LONGEST
        assert shown.isprintable()
        assert "abcdefgh" not in shown
    sessions = fields_of(FuseReset(tuple("abc") * 100))["callfuse.sessions"]
    assert isinstance(sessions, tuple)
    assert len(sessions) == fields.MOST


def test_a_session_has_one_name() -> None:
    """In each event, also if it looks like a secret: logs name it so."""
    name = "sk-proj-abcdefgh12345678"
    told = [
        fields_of(CallSeen(WHERE._replace(session=name), CALL, "none"))[fields.SESSION],
        fields_of(SettingsChanged(name, "tool-loop-mode = warn", False))[fields.SESSION],
    ]
    assert told == [name] * 2
    assert fields_of(FuseReset((name,)))[fields.SESSIONS] == (name,)


def test_ids_of_findings_are_not_to_be_guessed() -> None:
    """Short, for a URL and a command line, and each another one."""
    ids = {new_finding_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)
