"""Laws 1, 10 and 13 for a client that sends the same request again and again, after errors only: it is told; where that
is set, callfuse answers, and the vendor is not asked."""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from callfuse.conversations.ledger import StormEntry
from callfuse.conversations.retries import find_storm, request_digest, with_failure
from callfuse.conversations.storms import MOST
from callfuse.policy.settings import LoopSettings
from tests.support.asgi import JSON_REQUEST, Request, drive
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, given_log, in_session, reply
from tests.support.model import History, Round, User
from tests.support.plain import RESULT, new_call, saying, spin
from tests.support.scripted import Reply, play, whole

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
FRESH = History((User("Find the giraffe."),))
STOPS: dict[str, Any] = {"detectors": {"retry_storm": 4, "retry_storm_most": "block"}}
BUSY = whole(b'{"error": {"message": "busy"}}', 503)


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=retry_storm" in text]


def storm(request: Request, times: int, *replies: Reply, ladder: str = "block", **settings: Any) -> list[Meeting]:
    """The same request so many times; these are the answers, the last of which comes from then on."""

    async def talk(session: Session) -> None:
        for at in range(times):
            await session.exchange(request, replies[min(at, len(replies) - 1)])

    return in_session(talk, ladder, **settings).meetings


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("history", [FRESH, spin(2)], ids=["fresh", "suspect"])
def test_it_is_told_and_nothing_is_stopped(kit: DialectKit, stream: bool, history: History) -> None:
    """From the tenth on by default: every request reaches the vendor, and every error the client."""
    request = ask(kit, history, stream=stream)
    meetings = storm(request, 12, BUSY)
    assert [len(met.app.heard) for met in meetings] == [1] * 12
    assert all((met.client.status, met.body, met.app.heard[0].body) == (503, BUSY.body, request.body)
               for met in meetings)  # fmt: skip
    assert [len(told(met)) for met in meetings] == [0] * 9 + [1] * 3
    assert ["repeats=12/10" in text and "action=observe" in text for text in told(meetings[-1])] == [True]


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_vendor_is_not_asked(kit: DialectKit, stream: bool) -> None:
    """Where its cap is lifted: callfuse answers in the form of the dialect, in a way that no SDK retries."""
    meetings = storm(ask(kit, FRESH, stream=stream), 5, BUSY, **STOPS)
    assert [len(met.app.heard) for met in meetings] == [1, 1, 1, 0, 0]
    for met in meetings[3:]:
        assert met.client.status == 200
        assert kit.faults(met.body) == [] if stream else True
        (view,) = kit.read(met.body, stream=stream)
        assert MARK in view.text
        assert "The model was not asked." in view.text
        assert dict(met.client.headers)[b"x-callfuse-action"] == b"block; kind=retry_storm; count=4"
        assert ["action=block" in text for text in told(met)] == [True]


@every_dialect
@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_a_ladder_without_a_block_observes(kit: DialectKit, ladder: str) -> None:
    """Whatever the cap: no warning would change the next request."""
    meetings = storm(ask(kit, FRESH, stream=True), 5, BUSY, ladder=ladder, **STOPS)
    assert [len(met.app.heard) for met in meetings] == [1] * 5
    assert ["action=observe" in text for met in meetings for text in told(met)] == [True, True]


@pytest.mark.parametrize("status", [400, 401, 408, 429, 500, 502, 529])
def test_every_error_counts(status: int) -> None:
    """Also one that no retry can mend."""
    meetings = storm(ask(CHAT, FRESH, stream=True), 4, whole(b"{}", status), **STOPS)
    assert [len(met.app.heard) for met in meetings] == [1, 1, 1, 0]


@every_dialect
def test_the_innocent(kit: DialectKit) -> None:
    """A client that retries twice; one whose request differs; one that gets its answer; one that is signed, where
    nothing would be changed anyway, is counted as any other."""
    request, good = ask(kit, FRESH, stream=True), reply(kit, saying("Here.", new_call()), stream=True)
    twice = storm(request, 3, BUSY, BUSY, good)
    assert twice[-1].body == good.body
    mended = storm(request, 9, BUSY, BUSY, BUSY, good, BUSY, BUSY, BUSY, good, **{**STOPS, "detectors": {
        "retry_storm": 5, "retry_storm_most": "block"}})  # fmt: skip
    assert [len(met.app.heard) for met in mended] == [1] * 9

    async def differs(session: Session) -> None:
        for at in range(6):
            history = FRESH.and_then(*[Round((new_call(f"call_{one}"),), (f"{RESULT} {one}",)) for one in range(at)])
            await session.exchange(ask(kit, history, stream=True), BUSY)

    others = in_session(differs, **STOPS).meetings
    assert not [text for met in (*twice, *mended, *others) for text in told(met)]


def test_it_is_off() -> None:
    """Nothing is kept, or nothing is looked at."""
    request = ask(CHAT, FRESH, stream=True)
    for off in ({"detectors": {"retry_storm": False}}, {"enabled": False}):
        assert not [text for met in storm(request, 12, BUSY, **off) for text in told(met)]


def test_each_to_his_own() -> None:
    """Another client's same request is another lane's; so is that of another session."""

    async def talk(session: Session) -> None:
        request = ask(CHAT, FRESH, stream=True)
        for at in range(6):
            key = b"Bearer one" if at % 2 else b"Bearer two"
            await session.exchange(replace(request, headers=(*JSON_REQUEST, (b"authorization", key))), BUSY)

    meetings = in_session(talk, **STOPS).meetings
    assert [len(met.app.heard) for met in meetings] == [1] * 6


@pytest.mark.parametrize("answer", ["allow", "block"])
def test_a_callback_decides(answer: str) -> None:
    """It lets the request through, or stops it where the cap would not."""
    asked: list[str] = []

    def decide(event: Any) -> str:
        asked.append(event.finding.kind)
        return answer

    settings: dict[str, Any] = {
        "detectors": {"retry_storm": 3, "retry_storm_most": "block" if answer == "allow" else "observe"}
    }
    meetings = storm(ask(CHAT, FRESH, stream=True), 3, BUSY, on_loop=decide, **settings)
    assert len(meetings[-1].app.heard) == (answer == "allow")
    assert asked == ["retry_storm"]


def test_at_the_same_time() -> None:
    """Requests that fail beside one another are all counted."""

    async def talk() -> int:
        app = play(*[BUSY] * 8)
        guarded = guard(app, "block", **STOPS)
        request = ask(CHAT, FRESH, stream=True)
        await asyncio.gather(*(drive(guarded, request, turn=lambda: 0) for _ in range(3)))
        before = len(app.heard)
        await drive(guarded, request, turn=lambda: 0)
        return len(app.heard) - before

    with given_log():
        assert asyncio.run(talk()) == 0


def test_counts_within_a_minute_and_no_more() -> None:
    """What is older is dropped when another comes; a lane keeps so many at most."""
    settings = LoopSettings.model_validate({"detectors": {"retry_storm": 3}})
    body = b"{}"
    failures: tuple[StormEntry, ...] = ()
    for now in (0.0, 30.0, 59.0):
        failures = with_failure(failures, request_digest(body), now)
    found = find_storm(failures, body, 60.0, settings)
    assert found is not None
    assert (found.count, found.threshold, found.kind, found.window_s) == (4, 3, "retry_storm", 60.0)
    assert find_storm(failures, b"[]", 60.0, settings) is None
    assert find_storm(failures, body, 115.0, settings) is None
    assert with_failure(failures, b"x", 100.0) == (
        StormEntry(request_digest(body), 59.0),
        StormEntry(b"x", 100.0),
    )
    for _ in range(2 * MOST):
        failures = with_failure(failures, b"x", 60.0)
    assert len(failures) == MOST
    assert find_storm(failures, json.dumps({}).encode(), 60.0, LoopSettings(enabled=False)) is None
