"""Send events to a webhook: each in a POST of its own, signed, in order, with retries.

    webhook = Webhook(settings, bus)   # a sink: bus.add(webhook)
    webhook.attach()                   # in the event loop that shall send; else the loop of the first event sends
    await webhook.drain()              # at shutdown: try to send the waiting events

The queue is bounded; if it is full, the oldest event is dropped and counted. A receiver that is down, slow, or answers
with 408, 429 or 5xx gets the same event again, after increasing pauses. If it answers with another error status, it
gets the event `MOST_REFUSALS` times. Arguments and results of calls are never sent.
"""

import asyncio
import hmac
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp

from callfuse.boundary import Boundary
from callfuse.observe.background import Background
from callfuse.observe.bus import Bus
from callfuse.observe.events import DeliveryDropped, DeliveryFailed, Event
from callfuse.observe.fields import (
    CALL_ID,
    EVENT,
    FINDING_ID,
    KINDS,
    MODEL,
    PROVIDER,
    SESSION,
    SIGNATURE,
    SOURCE,
    TOOL,
    fields_of,
)
from callfuse.observe.naming import classes_of, is_chosen
from callfuse.observe.settings import EventsSettings
from callfuse.wire.jsontext import dumps

MOST_WAITING: Final = 1000
"""The most events that wait. Texts have at most 200 characters, so this takes a few MB."""
TIMEOUT_S: Final = 10.0
"""How long one POST may take."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LONGEST_RETRY_AFTER_S: Final = 300.0
"""The longest pause that a receiver can ask for."""
MOST_READ: Final = 64 * 1024
"""The most bytes that are read of an answer."""
MOST_REFUSALS: Final = 5
DRAIN_S: Final = 5.0
"""How long a server's shutdown waits for unsent events."""
DRAIN_PAUSE_S: Final = 0.25
IDLE_S: Final = 30.0
"""How long an idle connection is kept."""
RETRIED: Final = frozenset({408, 425, 429})
OWN: Final = frozenset({DeliveryDropped, DeliveryFailed})
"""Events that are never sent, because each failure would create another one."""

_logger: Final = logging.getLogger("callfuse")


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that waits to be sent. `id` stays the same for each try."""

    id: str
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a POST. `status`: 0 if no answer came. `retry_after`: seconds that the receiver asks for, or 0."""

    status: int
    why: str
    retry_after: float = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether the receiver accepted the event."""
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the receiver refuses the event, so that another try may not help."""
        return bool(self.status) and self.status < 500 and self.status not in RETRIED


class Webhook:
    """A sink that sends the chosen events. Failures are emitted to `bus`. `chance` returns a number from 0 to 1,
    `clock` seconds since the epoch."""

    def __init__(
        self,
        settings: EventsSettings,
        bus: Bus,
        *,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.kinds = classes_of(settings.kinds) - OWN
        self._settings = settings
        self._bus = bus
        self._chance = chance
        self._clock = clock
        self._waiting: deque[Delivery] = deque()
        self._current: Delivery | None = None
        self._is_down = False
        self._is_ending = False
        self._task = Background(self._work)

    @property
    def waiting(self) -> int:
        """The number of events that are not delivered yet."""
        return len(self._waiting) + (self._current is not None)

    def take(self, event: Event) -> None:
        """Queue an event, if it is chosen."""
        fields: dict[str, Any] = dict(fields_of(event))
        if type(event) in OWN or not is_chosen(fields, self._settings.kinds):
            return
        fields |= {"time": round(self._clock(), 3), "id": uuid4().hex}
        body = dumps(fields if self._settings.format == "json" else {"text": text_of(fields)})
        self._waiting.append(Delivery(fields["id"], event.name, body))
        while len(self._waiting) > MOST_WAITING:
            self._drop("full")
        self._task.wake()

    def attach(self) -> None:
        """Send from the running event loop from now on, including events of other threads."""
        self._task.wake()

    async def drain(self, seconds: float = DRAIN_S) -> None:
        """Send the events that wait, for at most `seconds`; drop the rest."""
        self._is_ending = True
        try:
            if self.waiting:
                self._task.wake()
            await self._task.stop(seconds if self.waiting else 0)
        finally:
            self._is_ending = False
        if self._current is not None:
            self._waiting.appendleft(self._current)
            self._current = None
        while self._waiting:
            self._drop("stopped")

    async def _work(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        # trust_env: use a proxy from the environment, as for upstreams.
        cookies = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True, cookie_jar=cookies) as session:
            while True:
                while self._current is not None or self._waiting:
                    self._current = self._current or self._waiting.popleft()
                    await self._deliver(session, self._current)
                    self._current = None
                if self._is_ending or not await self._task.pause(IDLE_S):
                    return

    async def _deliver(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        """Send an event until it is accepted, or refused too often."""
        tries = refusals = 0
        while True:
            answer = await self._post(session, delivery)
            self._note(answer)
            if answer.is_taken:
                return
            tries += 1
            refusals += answer.is_refused
            self._bus.emit(DeliveryFailed(answer.why))
            if refusals >= MOST_REFUSALS:
                self._bus.emit(DeliveryDropped("refused"))
                return
            await self._rest(tries, answer.retry_after)

    async def _rest(self, tries: int, retry_after: float) -> None:
        """Pause before the next try: longer each time, and at least as long as the receiver asks for."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries - 1, 10))
        pause = max(longest * (0.5 + self._chance() / 2), min(retry_after, LONGEST_RETRY_AFTER_S))
        until = self._task.now() + pause
        while (left := until - self._task.now()) > 0:
            if self._is_ending:
                await asyncio.sleep(min(left, DRAIN_PAUSE_S))
                return
            await self._task.pause(left)  # new events end the pause early

    async def _post(self, session: aiohttp.ClientSession, delivery: Delivery) -> Answer:
        headers = {
            "content-type": "application/json",
            "user-agent": "callfuse",
            "x-callfuse-event": delivery.name,
            "x-callfuse-delivery": delivery.id,
        }
        if self._settings.secret is not None:
            headers["x-callfuse-signature"] = sign(self._settings.secret, delivery.body)
        answer = Answer(0, "error")
        with Boundary() as boundary:  # keep the event, whatever the client raises
            try:
                async with session.post(
                    str(self._settings.webhook), data=delivery.body, headers=headers, allow_redirects=False
                ) as response:
                    await response.content.read(MOST_READ)  # an unread body would close the connection
                    wanted = read_retry_after(response.headers.get("retry-after", ""), self._clock())
                    answer = Answer(response.status, str(response.status), wanted)
            except TimeoutError:
                answer = Answer(0, "timeout")
            except aiohttp.ClientConnectionError:
                answer = Answer(0, "connection")
        if boundary.error is not None:
            answer = Answer(0, type(boundary.error).__name__)
        return answer

    def _drop(self, why: str) -> None:
        with suppress(IndexError):  # it was sent meanwhile
            self._waiting.popleft()
            self._bus.emit(DeliveryDropped(why))

    def _note(self, answer: Answer) -> None:
        """Log when the receiver fails, and when it accepts events again. Of its URL only the host is logged, because
        the rest may be a secret."""
        if self._is_down == answer.is_taken:
            self._is_down = not answer.is_taken
            host = urlsplit(str(self._settings.webhook)).hostname
            if self._is_down:
                _logger.warning("the webhook at %s fails (%s), events are waiting", host, answer.why)
            else:
                _logger.info("the webhook at %s accepts events again", host)


def sign(secret: str, body: bytes) -> str:
    """Return the signature of a body: HMAC-SHA256 in hex."""
    return hmac.new(secret.encode(), body, "sha256").hexdigest()


def read_retry_after(text: str, now: float) -> float:
    """Return the seconds in a `Retry-After` header, which is a number or a date; 0 if it cannot be parsed."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
        return max(0.0, (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


def text_of(fields: dict[str, Any]) -> str:
    """Return an event as one line for people, with Slack's markup escaped."""
    moment = datetime.fromtimestamp(fields["time"], UTC).isoformat(" ", "seconds")
    said = [f"{_called(name)}={_word(value)}" for name, value in fields.items() if name not in _UNSAID]
    line = f"[callfuse] {fields[EVENT]}: {', '.join(said)} ({moment})"
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_UNSAID: Final = frozenset({EVENT, "time", "id", SIGNATURE, SOURCE, CALL_ID, KINDS})
_NAMES: Final = {SESSION: "session", PROVIDER: "backend", MODEL: "model", TOOL: "tool", FINDING_ID: "finding"}


def _called(name: str) -> str:
    """Return the short name of a field."""
    return _NAMES.get(name) or name.rpartition(".")[2]


def _word(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
