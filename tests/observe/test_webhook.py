"""The webhook: what a receiver gets, and that one that is down, slow or refuses costs no exchange and loses nothing."""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from callfuse import CallFuseMiddleware
from callfuse.observe import webhook as module
from callfuse.observe.background import Background
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import NOWHERE, ActionTaken, DeliveryDropped, Event, FailedOpen, FuseBlown, Refused
from callfuse.observe.settings import EventsSettings
from callfuse.observe.webhook import MOST_REFUSALS, MOST_WAITING, Webhook, read_retry_after
from tests.observe.test_feed import finding
from tests.support.asgi import Message, Receive, Scope, Send
from tests.support.redis import free_port

SECRET = "a-secret-of-the-tests"
PATIENCE_S = 20


class Receiver:
    """Takes events, or answers as it is told: each with the next of `answers`, when there is one."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.taken: list[dict[str, Any]] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Callable[[], Awaitable[web.Response]]] = []
        self._news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        """One POST."""
        body = await request.read()
        self.requests.append(({name.lower(): value for name, value in request.headers.items()}, body))
        answer = web.Response() if not self.answers else await self.answers.pop(0)()
        if answer.status == 200:
            self.taken.append(json.loads(body))
        self._news.set()
        return answer

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """Listening, for the length of the block."""
        app = web.Application()
        app.router.add_post("/hook", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def until(self, taken: int) -> None:
        """Wait until it has taken so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.taken) < taken:
                self._news.clear()
                await self._news.wait()


def answering(status: int, **headers: str) -> Callable[[], Awaitable[web.Response]]:
    """An answer with a status."""

    async def answer() -> web.Response:
        return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds."""
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.02)


@pytest.fixture
async def receiver() -> Receiver:
    """One that is not up yet."""
    return Receiver()


@asynccontextmanager
async def sending(receiver: Receiver, **settings: Any) -> AsyncIterator[tuple[Bus, Webhook, Counts]]:
    """A bus with a webhook to a receiver."""
    counts = Counts()
    bus = Bus(counts)
    webhook = Webhook(EventsSettings(**{"webhook": receiver.url, "secret": SECRET, **settings}), bus)
    bus.add(webhook)
    try:
        yield bus, webhook, counts
    finally:
        await webhook.drain(0)


async def test_what_is_chosen_is_sent_and_signed(receiver: Receiver) -> None:
    """In order; the signature is that of the very bytes; arguments and results stay here."""
    async with receiver.up(), sending(receiver) as (bus, _, _):
        bus.emit(finding())
        bus.emit(Refused("websocket"))
        bus.emit(FuseBlown(NOWHERE._replace(session="one"), 5))
        await receiver.until(2)
    assert [one["callfuse.event"] for one in receiver.taken] == ["finding", "blown"]
    for headers, body in receiver.requests:
        assert headers["x-callfuse-signature"] == hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert headers["content-type"] == "application/json"
        assert headers["x-callfuse-event"] == json.loads(body)["callfuse.event"]
        assert headers["x-callfuse-delivery"] == json.loads(body)["id"]
    told = receiver.taken[0]
    assert (told["gen_ai.tool.name"], told["callfuse.finding.id"]) == ("search", "f1")
    assert told["time"] > 1e9
    assert not {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} & set(told)


async def test_a_block_is_one_post(receiver: Receiver) -> None:
    """The finding, which says what was done; the event of the action would say it again."""
    seen = finding()
    async with receiver.up(), sending(receiver) as (bus, webhook, _):
        bus.emit(seen)
        bus.emit(ActionTaken(NOWHERE, "f1", "block", first=True))
        bus.emit(FuseBlown(NOWHERE, 1))
        await receiver.until(2)
        assert webhook.waiting <= 1
    assert [one["callfuse.event"] for one in receiver.taken] == ["finding", "blown"]
    assert receiver.taken[0]["callfuse.action"] == seen.action


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    """There is no such header."""
    async with receiver.up(), sending(receiver, secret=None) as (bus, _, _):
        bus.emit(finding())
        await receiver.until(1)
    assert "x-callfuse-signature" not in receiver.requests[0][0]


async def test_findings_are_chosen_by_kind(receiver: Receiver) -> None:
    """Those of other kinds are not sent."""
    async with receiver.up(), sending(receiver, kinds=("repeat", "refused")) as (bus, webhook, _):
        for event in (finding(), FuseBlown(NOWHERE, 1), Refused("websocket")):
            bus.emit(event)
        await receiver.until(2)
        assert webhook.waiting <= 1
    assert [one["callfuse.event"] for one in receiver.taken] == ["finding", "refused"]


async def test_slack_gets_a_text(receiver: Receiver) -> None:
    """In which no name of a tool or session is markup."""
    async with receiver.up(), sending(receiver, format="slack") as (bus, _, _):
        bus.emit(FuseBlown(NOWHERE._replace(session="<!channel> & co"), 5))
        bus.emit(finding())
        await receiver.until(2)
    told, of_finding = receiver.taken
    assert of_finding["text"].startswith(
        "[callfuse] finding: tool=search, finding=f1, kind=repeat, count=3, threshold=3, "
    )
    assert set(told) == {"text"}
    assert told["text"].startswith("[callfuse] blown: session=&lt;!channel&gt; &amp; co, blocks=5 (20")


async def test_a_receiver_that_is_down_loses_nothing(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Every event comes when it is up, in order and once; the log says so once each, without the path."""
    caplog.set_level(logging.INFO)
    async with sending(receiver) as (bus, webhook, counts):
        for blocks in range(50):
            bus.emit(FuseBlown(NOWHERE, blocks))
        async with asyncio.timeout(PATIENCE_S):
            while counts.of("webhook_failed", "connection") < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        assert webhook.waiting == 50
        async with receiver.up():
            await receiver.until(50)
            async with asyncio.timeout(PATIENCE_S):
                while webhook.waiting:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
    assert [one["callfuse.blocks"] for one in receiver.taken] == [*range(50)]
    assert counts.of("webhook_dropped") == 0
    lines = [record.getMessage() for record in caplog.records if "webhook" in record.getMessage()]
    assert lines == [
        "the webhook at 127.0.0.1 fails (connection), events are waiting",
        "the webhook at 127.0.0.1 accepts events again",
    ]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_one_that_cannot_now_loses_nothing(receiver: Receiver, status: int) -> None:
    """It gets the same delivery again, as often as it takes."""
    receiver.answers = [answering(status)] * (2 * MOST_REFUSALS)
    async with receiver.up(), sending(receiver) as (bus, _, counts):
        bus.emit(FuseBlown(NOWHERE, 1))
        bus.emit(FuseBlown(NOWHERE, 2))
        await receiver.until(2)
    assert counts.of("webhook_failed", str(status)) == 2 * MOST_REFUSALS
    assert [one["callfuse.blocks"] for one in receiver.taken] == [1, 2]
    again = {headers["x-callfuse-delivery"] for headers, _ in receiver.requests[: 2 * MOST_REFUSALS + 1]}
    assert len(again) == 1


@pytest.mark.parametrize("status", [301, 400, 403, 404, 410])
async def test_what_is_refused_is_tried_a_few_times(receiver: Receiver, status: int) -> None:
    """One event that a receiver never takes does not stop the others; no redirect is followed."""
    receiver.answers = [answering(status, location=receiver.url)] * MOST_REFUSALS
    async with receiver.up(), sending(receiver) as (bus, _, counts):
        bus.emit(FuseBlown(NOWHERE, 1))
        bus.emit(FuseBlown(NOWHERE, 2))
        await receiver.until(1)
    assert [one["callfuse.blocks"] for one in receiver.taken] == [2]
    assert counts.of("webhook_dropped", "refused") == 1


@pytest.mark.slow
async def test_one_that_is_slow_is_asked_again(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time; whoever emits waits for nothing."""
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    never = asyncio.Event()

    async def hang() -> web.Response:
        await never.wait()
        raise AssertionError

    receiver.answers = [hang]
    async with receiver.up(), sending(receiver) as (bus, _, counts):
        bus.emit(FuseBlown(NOWHERE, 1))
        await receiver.until(1)
    assert counts.of("webhook_failed", "timeout") == 1


@pytest.mark.slow
async def test_what_waits_is_bounded_and_counted(receiver: Receiver) -> None:
    """The oldest goes, and what is being sent stays."""
    async with sending(receiver) as (bus, webhook, counts):
        bus.emit(FuseBlown(NOWHERE, -1))
        async with asyncio.timeout(PATIENCE_S):
            while not counts.of("webhook_failed"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        for blocks in range(MOST_WAITING + 10):
            bus.emit(FuseBlown(NOWHERE, blocks))
        assert (webhook.waiting, counts.of("webhook_dropped", "full")) == (MOST_WAITING + 1, 10)
        async with receiver.up():
            await receiver.until(MOST_WAITING + 1)
    assert [one["callfuse.blocks"] for one in receiver.taken] == [-1, *range(10, MOST_WAITING + 10)]


async def test_what_the_receiver_asks_for_is_waited(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a bound."""
    pauses: list[float] = []
    rest = Webhook._rest

    async def noted(self: Webhook, tries: int, retry_after: float) -> None:
        pauses.append(retry_after)
        await rest(self, tries, min(retry_after, 0.001))

    monkeypatch.setattr(Webhook, "_rest", noted)
    receiver.answers = [answering(429, retry_after="7"), answering(503, retry_after="soon")]
    async with receiver.up(), sending(receiver) as (bus, _, _):
        bus.emit(FuseBlown(NOWHERE, 1))
        await receiver.until(1)
    assert pauses == [7.0, 0.0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("9" * 30, 999_999_999),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("", 0),
        ("-5", 0),
        ("١٢", 0),
        ("1.5", 0),
    ],
)
def test_how_long_a_receiver_wants(text: str, seconds: float) -> None:
    """A number of seconds or a date; anything else says nothing."""
    assert read_retry_after(text, 1000.0) == seconds


async def test_pauses_grow_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is up to twice as long as the one before, and half by chance; those asked for have a bound, too."""
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 60.0)
    chances = iter([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    webhook = Webhook(EventsSettings(webhook="http://h"), Bus(), chance=lambda: next(chances))
    time = [0.0]
    waited: list[float] = []

    async def pause(_task: Background, seconds: float) -> bool:
        waited.append(seconds)
        time[0] += seconds
        return False

    monkeypatch.setattr(Background, "now", lambda _task: time[0])
    monkeypatch.setattr(Background, "pause", pause)
    for tries, asked in ((1, 0), (1, 0), (3, 0), (100, 0), (1, 50), (1, 10_000)):
        await webhook._rest(tries, asked)
    assert waited == [0.5, 1.0, 2.0, 30.0, 50, 300.0]


async def test_failures_of_the_webhook_are_not_sent_to_it(receiver: Receiver) -> None:
    """Each would make the next."""
    receiver.answers = [answering(400)] * MOST_REFUSALS
    async with (
        receiver.up(),
        sending(receiver, kinds=("blown", "webhook_failed", "webhook_dropped")) as (bus, webhook, _),
    ):
        bus.emit(FuseBlown(NOWHERE, 1))
        bus.emit(FuseBlown(NOWHERE, 2))
        await receiver.until(1)
        assert webhook.waiting <= 1
    assert len(receiver.requests) == MOST_REFUSALS + 1


async def test_events_of_threads_are_sent(receiver: Receiver) -> None:
    """From the loop in which it was attached, or an event has happened."""
    async with receiver.up(), sending(receiver) as (bus, webhook, _):
        webhook.attach()
        await asyncio.to_thread(bus.emit, FailedOpen("a cause"))
        await receiver.until(1)


def lifespan_app(at_end: Callable[[], None]) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An app with a lifespan."""

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        at_end()
        await send({"type": "lifespan.shutdown.complete"})

    return app


@pytest.mark.parametrize("is_up", [True, False])
async def test_the_end_of_the_lifespan_waits_for_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, is_up: bool
) -> None:
    """What happens last is sent before the server is told that it may go; a receiver that is down has a bound."""
    monkeypatch.setattr(module, "DRAIN_S", 0.3)
    monkeypatch.setattr(Webhook.drain, "__defaults__", (0.3,))
    last: Event = FuseBlown(NOWHERE, 9)
    fuse = CallFuseMiddleware(lifespan_app(lambda: fuse.bus.emit(last)), {"events": {"webhook": receiver.url}})
    incoming = iter(["lifespan.startup", "lifespan.shutdown"])
    at_end: list[int] = []

    async def receive() -> Message:
        return {"type": next(incoming)}

    async def send(message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            at_end.append(len(receiver.taken))

    async with asyncio.timeout(PATIENCE_S):
        if is_up:
            async with receiver.up():
                await fuse({"type": "lifespan"}, receive, send)
        else:
            await fuse({"type": "lifespan"}, receive, send)
    assert at_end == [int(is_up)]
    assert fuse.counts.of("webhook_dropped", "stopped") == int(not is_up)
    assert fuse.counts.of("webhook_dropped") == fuse.counts.of("webhook_dropped", "stopped")


async def test_without_a_lifespan_the_first_event_starts_it(receiver: Receiver) -> None:
    """Where the host runs none."""
    fuse = CallFuseMiddleware(lifespan_app(lambda: None), {"events": {"webhook": receiver.url}})
    async with receiver.up():
        fuse.bus.emit(FuseBlown(NOWHERE, 9))
        await receiver.until(1)
    webhook = next(sink for sink, _ in fuse.bus._sinks if isinstance(sink, Webhook))
    await webhook.drain()
    assert isinstance(DeliveryDropped("full"), Event)
