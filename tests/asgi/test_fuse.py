"""The fuse: an agent that goes on by itself, whatever it says to a block, costs its owner a few requests and no more.

The agent here is one as mini-swe-agent is: it sends its whole history, runs what it gets, and answers a text without a
call at once with a user message of its own.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.admin import AdminApp
from callfuse.guard import growing_texts
from tests.laws.test_runaway_text import UNREAD, endless
from tests.support.asgi import Exchange, Headers, Request, drive
from tests.support.config import PATIENT, settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, every_dialect, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, User
from tests.support.plain import RESULT, new_call, same_call, saying
from tests.support.scripted import ScriptedApp

TASK = User("Find the zebra crossing.")
KNOWN_RETRY = (
    "Tool call error:\n\n<error>\nNo tool calls found in the response. Every response MUST include at least one tool "
    "call.\n</error>\n\nHere is general guidance on how to submit correct toolcalls: ..."
)
UNKNOWN_RETRY = "Tool call error: (1) No tool calls found in the response. Please try again, and call a tool."
CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


def stubborn(number: int) -> Answer:
    """The model makes the same call, whatever it is told."""
    return saying("Let me look.", same_call(f"call_{number}"), tag=f"r{number}")


@dataclass
class Agent:
    """An agent, its history, and the guarded model that it asks. `spent`: requests that have reached the vendor."""

    kit: DialectKit
    stream: bool = True
    answers: Callable[[int], Answer] = stubborn
    retry: Callable[[int], str] = lambda _: UNKNOWN_RETRY
    loop: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=lambda: History((TASK,)))
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)
    store: str | None = None
    workers: int = 1
    spent: int = 0
    blocks: int = 0
    asked: int = 0

    def __post_init__(self) -> None:
        config = settings("chance_then_block", **self.loop) | PATIENT
        self.guards = [CallFuseMiddleware(self._vendor, config, store=self.store) for _ in range(self.workers)]

    @property
    def guard(self) -> CallFuseMiddleware:
        """The worker whose turn it is."""
        return self.guards[self.asked % self.workers]

    async def _vendor(self, scope: Any, receive: Any, send: Any) -> None:
        self.spent += 1
        answer = reply(self.kit, self.answers(self.spent), stream=self.stream)
        await ScriptedApp((answer,))(scope, receive, send)

    async def ask(self) -> Exchange:
        """One request for the history as it is."""
        self.asked += 1
        return await drive(self.guard, ask(self.kit, self.history, stream=self.stream, headers=self.headers))

    async def step(self) -> str:
        """One step of the agent: runs the calls, or says that there was none. Returns what it was told, if anything."""
        before = self.spent
        (view,) = self.kit.sdk((await self.ask()).body, stream=self.stream)
        if view.calls:
            call = new_call(view.calls[0].id) if "giraffe" in view.calls[0].arguments else same_call(view.calls[0].id)
            self.history = self.history.and_then(Round((call,), (RESULT,)))
            return ""
        self.blocks += self.spent > before
        self.history = self.history.and_then(Round((), (), view.text), User(self.retry(self.blocks)))
        return view.text

    async def run(self, steps: int) -> list[str]:
        """So many steps."""
        return [await self.step() for _ in range(steps)]


@pytest.mark.slow
@every_dialect
@streamed_and_whole
@pytest.mark.parametrize(("retry", "most"), [(KNOWN_RETRY, 8), (UNKNOWN_RETRY, 10)], ids=["known", "unknown"])
def test_an_agent_that_talks_to_a_wall(kit: DialectKit, stream: bool, retry: str, most: int) -> None:
    """Twenty-five steps cost ten requests at most, in whatever words it goes on: five blocks, then nobody is asked."""
    agent = Agent(kit, stream, retry=lambda _: retry)
    told = asyncio.run(agent.run(25))
    assert agent.spent <= most
    assert agent.blocks == 5
    assert agent.guard.counts.of("blown") > 10
    assert "The fuse has blown" in told[-1]
    assert told[-1].startswith(MARK)


@pytest.mark.parametrize(
    "retry",
    [
        lambda number: f"Continue (attempt {number}).",
        lambda number: f"[2026-01-02T10:{number:02}:07Z] No tool calls found. Go on.",
    ],
    ids=["counter", "time"],
)
def test_words_with_a_counter_or_a_time(retry: Callable[[int], str]) -> None:
    """They are the same words."""
    agent = Agent(CHAT)
    agent.retry = lambda _: retry(agent.asked)
    asyncio.run(agent.run(40))
    assert agent.spent <= 10
    assert agent.guard.counts.of("blown") > 20


@pytest.mark.slow
@every_dialect
@pytest.mark.parametrize("session", [b"", b"my own session"], ids=["unnamed", "named"])
def test_a_harness_that_drops_its_history(kit: DialectKit, session: bytes) -> None:
    """After each block it sends the task and its own words alone: the lane remembers what it has blocked."""
    named = ((b"x-callfuse-session-id", session),) if session else ()
    agent = Agent(kit, headers=((b"content-type", b"application/json"), *named))

    async def run() -> None:
        for _ in range(40):
            if await agent.step():
                agent.history = History((TASK, User(f"{UNKNOWN_RETRY} Attempt {agent.asked}.")))

    asyncio.run(run())
    assert agent.spent <= 16
    assert agent.guard.counts.of("blown") > 20


def blown(**more: Any) -> Agent:
    """An agent whose fuse has blown."""
    agent = Agent(CHAT, **more)
    asyncio.run(agent.run(20))
    assert agent.guard.counts.of("blown")
    return agent


def asks_the_model(agent: Agent) -> bool:
    """Whether its next request reaches the vendor."""
    before = agent.spent
    asyncio.run(agent.ask())
    return agent.spent > before


def test_what_a_person_types_goes_to_the_model() -> None:
    """Until the next block: then the fuse is blown as it was. The same words again were typed by nobody."""
    agent = blown()
    agent.history = agent.history.and_then(User("Search for giraffes instead."))
    assert asks_the_model(agent)
    asyncio.run(agent.step())
    assert not asks_the_model(agent)
    agent.history = agent.history.and_then(User("Search for giraffes instead."))
    assert not asks_the_model(agent)
    agent.history = agent.history.and_then(User("Then for elephants."))
    assert asks_the_model(agent)


def test_a_new_call_that_runs_mends_it() -> None:
    """The count of the row begins anew with it."""
    agent = blown()
    agent.history = agent.history.and_then(User("Search for giraffes instead."))
    agent.answers = lambda at: saying(new_call(f"call_{at}"), tag=f"r{at}")
    asyncio.run(agent.step())
    agent.answers = stubborn
    assert asks_the_model(agent)
    before = agent.spent
    asyncio.run(agent.run(20))
    assert 5 <= agent.spent - before <= 12


@pytest.mark.parametrize("command", ["!/status", "!/set(tool-loop-max-repeats=4)\nGo on."])
def test_a_command_resets_it(command: str) -> None:
    """Any that a user types, whether callfuse answers it or the model does."""
    agent = blown()
    going_on = agent.history
    agent.history = going_on.and_then(User(command))
    asyncio.run(agent.ask())
    agent.history = going_on
    assert asks_the_model(agent)


@pytest.mark.parametrize(
    ("credential", "name"),
    [(((b"authorization", b"Bearer key"),), r"my own session"), ((), r"my own session\.[0-9a-f]{32}")],
)
def test_an_operator_resets_it(credential: Headers, name: str) -> None:
    """A POST to the admin page, for a session by the id of its client; of that one alone, and not from another site.
    Without a credential that is each conversation under this id."""
    headers = ((b"content-type", b"application/json"), (b"x-callfuse-session-id", b"my own session"))
    agent = blown(headers=(*headers, *credential))
    page = AdminApp(agent.guard, token="the-token-of-the-tests")

    def post(query: bytes, *more: tuple[bytes, bytes], method: str = "POST") -> Exchange:
        headers = ((b"authorization", b"Bearer the-token-of-the-tests"), *more)
        return asyncio.run(drive(page, Request("/reset", b"", headers, method, query)))

    assert post(b"session=another").status == 404
    assert post(b"").status == 400
    assert post(b"session=my%20own%20session", (b"sec-fetch-site", b"cross-site")).status == 403
    assert post(b"session=my%20own%20session", method="GET").status == 405
    assert asyncio.run(drive(page, Request("/reset", b"", (), "POST", b"session=my%20own%20session"))).status == 401
    assert not asks_the_model(agent)
    answer = post(b"session=my%20own%20session")
    assert answer.status == 200
    assert [bool(re.fullmatch(name, one)) for one in json.loads(answer.body)["reset"]] == [True]
    assert asks_the_model(agent)
    assert agent.guard.counts.of("resets") == 1


def test_a_new_session_has_a_new_fuse() -> None:
    """By its id, or by beginning anew; the same session stays as it is."""
    agent = blown()
    assert not asks_the_model(agent)
    mine = agent.headers
    agent.headers = (*mine, (b"x-callfuse-session-id", b"another-session"))
    assert asks_the_model(agent)
    agent.headers, agent.history = mine, History((TASK,))
    assert asks_the_model(agent)


def test_a_task_that_is_begun_again_has_a_new_fuse() -> None:
    """Though the client gives the session the same id: no model has said anything in it yet."""
    agent = blown(headers=((b"content-type", b"application/json"), (b"x-callfuse-session-id", b"my own session")))
    agent.history = History((TASK,))
    before = agent.spent
    asyncio.run(agent.run(3))
    assert agent.spent > before + 2


def test_off_and_other_limits() -> None:
    """`blow_after: 0` never answers by itself; any other number is that many blocks."""
    for limit in (0, 2):
        agent = Agent(CHAT, loop={"blow_after": limit}, retry=lambda _: KNOWN_RETRY)
        asyncio.run(agent.run(12))
        assert agent.guard.counts.of("blown") == (0 if limit == 0 else 12 - 4)
        assert agent.blocks == (limit or 10)


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_where_nothing_is_blocked_any_more_it_is_mended(mode: str) -> None:
    """An operator who only observes or warns gets the model's answers."""
    agent = blown()
    agent.guard.configure({"tool_call_loop": {"mode": mode}})
    assert asks_the_model(agent)


def test_the_history_may_be_cut() -> None:
    """The fuse is the lane's: what the client still shows does not matter."""
    agent = blown()
    turns = agent.history.turns
    agent.history = History((TASK, *turns[-2:]))
    assert not asks_the_model(agent)


def test_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """In the text, which is a setting, in a header, in the counts, and at WARNING."""
    agent = blown(loop={"error_messages": {"blown": "Enough of {tool_name}: {count}, not {max_repeats}. {model}"}})
    caplog.clear()
    with caplog.at_level(logging.INFO, "callfuse"):
        answer = asyncio.run(agent.ask())
    (view,) = agent.kit.sdk(answer.body, stream=True)
    assert view.text == f"{MARK} Enough of search: 5, not 5. gpt-test"
    assert answer.header(b"x-callfuse-action") == b"blown"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (record.__dict__["blocks"], record.__dict__["action"]) == (5, "blown")
    assert "The fuse has blown in session" in record.getMessage()
    assert "search" not in record.getMessage()


def test_requests_that_are_no_part_of_the_loop() -> None:
    """One without tools, such as for a title, goes to the model."""
    agent = blown()
    body = json.loads(ask(CHAT, agent.history, stream=True).body)
    del body["tools"]
    request = ask(CHAT, agent.history, stream=True)
    before = agent.spent
    asyncio.run(drive(agent.guard, type(request)(request.path, json.dumps(body).encode(), request.headers)))
    assert agent.spent == before + 1


@every_dialect
@streamed_and_whole
def test_a_text_that_runs_away_again_and_again(kit: DialectKit, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of a text counts: a harness that goes on by itself is not served for ever. A person is."""
    monkeypatch.setattr(growing_texts, "UNREAD", UNREAD)
    loop = {"detectors": {"runaway": {"text": "block"}}}
    agent = Agent(kit, stream, answers=lambda number: endless("text"), loop=loop)
    told = asyncio.run(agent.run(8))
    assert (agent.spent, agent.guard.counts.of("blown")) == (5, 3)
    assert "The fuse has blown" in told[-1]
    agent.history = agent.history.and_then(User("Write it as a list of three points, please."))
    assert "repeats itself" in asyncio.run(agent.step())
    assert agent.spent == 6


@pytest.mark.parametrize(("call", "blown"), [(new_call("call_5"), False), (same_call("call_5"), True)])
def test_a_call_between_texts_that_run_away(call: Call, blown: bool) -> None:
    """A new call that is executed ends the row, as for blocked calls; one that was known before the row does not."""
    calls = {1: same_call("call_1"), 5: call}

    def answer(number: int) -> Answer:
        return saying(calls[number]) if number in calls else endless("text")

    agent = Agent(CHAT, stream=False, answers=answer, loop={"detectors": {"runaway": {"text": "block"}}})
    asyncio.run(agent.run(9))
    assert (agent.guard.counts.of("blown") > 0) is blown
