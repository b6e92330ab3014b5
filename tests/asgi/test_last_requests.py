"""What is kept of requests that may come again: of whom, how much, and for how long."""

import json
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi import prepare
from callfuse.asgi.budget import ByteBudget
from callfuse.asgi.last_requests import MOST_ALIKE, LastRequest, LastRequests, Sender
from callfuse.dialects.continued import ReadHistory
from callfuse.wire.resent import KnownText, parse_new, parse_whole
from tests.support.asgi import JSON_REQUEST, Request, drive
from tests.support.config import settings
from tests.support.kits import KITS
from tests.support.meeting import reply
from tests.support.plain import saying
from tests.support.scripted import play

CHAT = KITS[0]
ME, YOU = Sender(b"me", (), "d", "/"), Sender(b"you", (), "d", "/")
TTL_S = 300.0


def body(messages: int, about: str = "x", length: int = 2000) -> bytes:
    """A request of so many messages."""
    said = [
        {"role": "user", "content": f"{at} " + (about + " ") * (length // len(about + " "))} for at in range(messages)
    ]
    tools = [{"type": "function", "function": {"name": "search"}}]
    return json.dumps({"model": "m", "messages": said, "tools": tools, "stream": True}).encode()


class Keeper:
    """Keeps requests as exchanges do. `parsed`: the bytes that were parsed of each."""

    def __init__(self, limit: int = 10**8, total: float = 10**9) -> None:
        self.kept = LastRequests()
        self.kept.bound(limit)
        self.budget = ByteBudget(total, self.kept)
        self.parsed: list[int] = []

    def ask(self, text: bytes, sender: Sender = ME, now: float = 0.0) -> int:
        """A request. Returns how many bytes of it were parsed."""
        found, mark = self.kept.find(sender, text), self.kept.mark
        shared = found.shared if found else None
        news = parse_new(text, "messages", shared, mark) if shared and shared.is_proven else None
        read = news or parse_whole(text, "messages", None if shared and shared.is_proven else shared, mark)
        assert read is not None
        assert read.payload == json.loads(text)
        assert read.known is not None
        new, room = LastRequest(sender, read.known, ReadHistory(), None), self.budget.limit - self.budget.used
        self.kept.keep(new, found and found.last, room, now, TTL_S)
        return len(found.new) if found and news else len(text)

    def is_kept(self, text: bytes, sender: Sender = ME) -> bool:
        """Whether a request that repeats this one would be found."""
        return self.kept.find(sender, text) is not None


def known(keeper: Keeper) -> list[KnownText]:
    """What is known of all that are kept."""
    return [one.known for one in keeper.kept._by_use]


def test_one_request_of_a_conversation_is_kept() -> None:
    """The last one, however long it goes on; from the third on only what is new is parsed."""
    keeper = Keeper()
    parsed = [keeper.ask(body(messages)) for messages in range(3, 40)]
    assert max(parsed[2:]) < 2100
    assert len(keeper.kept._by_use) == 1
    (one,) = known(keeper)
    assert b"".join([*one.parts, one.rest]) == body(39)


def test_many_conversations_are_told_apart() -> None:
    """Though they begin alike and come by turns."""
    keeper = Keeper()
    for messages in range(3, 9):
        for about in range(50):
            parsed = keeper.ask(body(messages, f"{about}"))
            assert (parsed < 2100) is (messages > 4)
    assert len(keeper.kept._by_use) == 50


def test_of_those_that_look_alike_a_few_are_kept() -> None:
    """Conversations whose samples are the same: looking through them takes a bounded time."""
    keeper = Keeper()
    for about in range(3 * MOST_ALIKE):
        keeper.ask(body(2, length=4100).replace(b"1 x", b"%d x" % about))
    assert max(map(len, keeper.kept._alike.values())) <= MOST_ALIKE
    assert sum(map(len, keeper.kept._alike.values())) == len(keeper.kept._by_use)


def test_nobody_meets_anothers_request() -> None:
    """The same bytes from another credential or session, or to another path, are parsed as if they were new."""
    keeper = Keeper()
    for messages in (3, 4, 5):
        keeper.ask(body(messages))
    assert keeper.ask(body(6)) < 2100
    for other in (YOU, ME._replace(session=(b"s",)), ME._replace(target="/other"), ME._replace(dialect="other")):
        assert not keeper.is_kept(body(7), other)
    assert keeper.is_kept(body(7))


def test_what_is_kept_is_bounded() -> None:
    """In bytes of all; the one unused for longest goes first, and one that is longer than all may be is not kept."""
    keeper = Keeper(limit=100_000)
    for about in range(40):
        keeper.ask(body(3, f"{about}"))
        assert keeper.kept.size <= 100_000
        assert keeper.kept.size == sum(one.size for one in known(keeper))
    assert keeper.is_kept(body(3, "39"))
    assert not keeper.is_kept(body(3, "0"))
    keeper.ask(body(60))
    assert not keeper.is_kept(body(60))


@pytest.mark.parametrize("sized", ["a", "é"])
def test_what_is_parsed_counts(sized: str) -> None:
    """Values beside their texts, and strings at the width of their widest character."""
    keeper = Keeper()
    text = json.dumps({"messages": [{"role": sized * 50}] * 100}, ensure_ascii=False).encode()
    for _ in range(2):
        keeper.ask(text)
    (one,) = known(keeper)
    assert one.size >= len(text) * (1 if sized == "a" else 2) + 100 * 60


def test_what_was_not_used_goes() -> None:
    """With the next request, whoever's that is."""
    keeper = Keeper()
    keeper.ask(body(3, "old"))
    keeper.ask(body(3, "used"))
    keeper.ask(body(3, "used"), now=TTL_S - 1)
    keeper.ask(body(3, "new"), YOU, now=TTL_S)
    assert not keeper.is_kept(body(3, "old"))
    assert keeper.is_kept(body(3, "used"))


def test_it_gives_way_to_exchanges() -> None:
    """What is kept is within the limit of all, and goes before an exchange has to."""
    keeper = Keeper(total=50_000)
    keeper.ask(body(3))
    share = keeper.budget.open()
    assert share.add(30_000)
    assert keeper.is_kept(body(3))
    assert share.add(18_000)
    assert not keeper.is_kept(body(3))
    assert keeper.kept.size == 0
    keeper.ask(body(3))
    assert not keeper.is_kept(body(3)), "there is no room for it"
    assert not share.add(10_000)


def fuse(**more: Any) -> CallFuseMiddleware:
    """A middleware."""
    return CallFuseMiddleware(play(*[reply(CHAT, saying("Well."), stream=True)] * 9), settings("block", **more))


def kept_by(guarded: CallFuseMiddleware) -> LastRequests:
    """What a middleware keeps of requests."""
    return guarded._host.last_requests


def asked(text: bytes, key: bytes = b"key-of-the-test") -> Request:
    """A request with a credential."""
    headers = tuple((name, b"Bearer " + key if name == b"authorization" else value) for name, value in JSON_REQUEST)
    return Request(CHAT.path, text, headers)


async def test_a_middleware_keeps_as_much_as_it_is_told() -> None:
    """`max_kept_bytes`: nothing with 0, also from when it is set to that on."""
    guarded, off = fuse(), fuse(max_kept_bytes=0)
    for one in (guarded, off):
        await drive(one, asked(body(4)))
    assert len(kept_by(guarded)._by_use) == 1
    assert guarded.held_bytes == 0
    assert len(kept_by(off)._by_use) == 0
    guarded.configure(settings("block", max_kept_bytes=0))
    assert len(kept_by(guarded)._by_use) == 0
    await drive(guarded, asked(body(5)))
    assert len(kept_by(guarded)._by_use) == 0


async def test_nothing_short_is_kept() -> None:
    """It is parsed in no time."""
    guarded = fuse()
    for length, kept in ((100, 0), (5000, 1)):
        await drive(guarded, asked(body(1, length=length)))
        assert len(kept_by(guarded)._by_use) == kept


async def test_clients_are_told_apart_by_their_credentials_and_sessions() -> None:
    """The same conversation of two clients, or of two sessions of one, is kept for each."""
    guarded = fuse()
    for key in (b"one", b"two", b"one"):
        await drive(guarded, asked(body(4), key))
    assert len(kept_by(guarded)._by_use) == 2
    for session in (b"s1", b"s2", b"s1"):
        request = asked(body(4), b"one")
        await drive(guarded, replace(request, headers=(*request.headers, (b"x-session-id", session))))
    assert len(kept_by(guarded)._by_use) == 4


async def test_commands_of_a_new_prefix_are_found_in_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was searched for one prefix was not searched for another."""
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    said = {"role": "user", "content": "#/set(tool-loop-mode=warn)"}
    text = json.dumps({"model": "m", "messages": [said], "tools": [{}], "stream": True}).encode()
    guarded = fuse()
    for _ in range(3):
        await drive(guarded, asked(text))
    guarded.configure(settings("block", commands={"prefix": "#/"}))
    exchanged = await drive(guarded, asked(text))
    assert exchanged.header(b"x-callfuse-action") == b"command"
