"""The feed: what a reader gets, what it costs others that one does not read, and what is kept for later."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.model.outcomes import outcome_of
from callfuse.observe import feed as module
from callfuse.observe import kept
from callfuse.observe.bus import Bus
from callfuse.observe.content import finished
from callfuse.observe.events import (
    NOWHERE,
    ActionTaken,
    CallSeen,
    FindingSeen,
    FuseBlown,
    NotGuarded,
    Refused,
    ResultSeen,
)
from callfuse.observe.feed import DROPPED, MISSED, MOST_WAITING, TURN, Feed, FullError, Reader
from callfuse.observe.fields import Value
from callfuse.observe.ring import Choice, EventId, FeedEvent, Ring, WrittenEvent, read_id, write
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

ALL = Choice()
STARRED = 30
"""Characters by which stars make the texts of `finding` shorter, at most."""
EVENT = Refused("websocket")


async def read(reader: Reader, least: int = 1) -> list[dict[str, Any]]:
    """The data of at least so many frames."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        async for chunk in reader.chunks():
            frames = chunk.decode().split("\n\n")[:-1]
            found += [json.loads(frame.partition("data: ")[2]) for frame in frames]
            if len(found) >= least:
                break
    return found


async def test_every_reader_gets_every_event_in_order() -> None:
    """Their ids grow, also where the clock does not."""
    feed = Feed(clock=lambda: 1000.0)
    readers = [await feed.open(ALL) for _ in range(3)]
    for blocks in range(500):
        feed.take(FuseBlown(NOWHERE, blocks))
    for reader in readers:
        assert [one["callfuse.blocks"] for one in await read(reader, 500)] == list(range(500))
    entries, _ = feed._ring.after((0, 0))
    ids = [entry.id for entry in entries]
    assert ids == sorted(set(ids))


async def test_a_reader_that_does_not_read_is_dropped_with_a_word() -> None:
    """What waits for it is bounded, and the others get everything."""
    feed = Feed()
    idle, busy = await feed.open(ALL), await feed.open(ALL)
    got, sent = 0, 0
    while not idle.ended:
        for _ in range(500):
            feed.take(NotGuarded("x" * 200))
            sent += 1
        got += len(await read(busy, 500))
        assert idle._size <= MOST_WAITING
    while got < sent:
        got += len(await read(busy))
    assert feed.readers == 1
    assert [chunk async for chunk in idle.chunks()] == [DROPPED]


async def test_nobody_waits_for_a_reader() -> None:
    """To take an event is not to write to anybody: that is done together, in the task."""
    feed = Feed()
    readers = [await feed.open(ALL) for _ in range(50)]
    for _ in range(100):
        feed.take(EVENT)
    assert [len(reader._chunks) for reader in readers] == [0] * 50
    for reader in readers:
        assert len(await read(reader, 100)) == 100
        assert len(reader._chunks) == 0


class Store:
    """A relay that gives back what it has been given."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []

    async def exchange(
        self, data: Sequence[bytes], after: EventId | None, most: int
    ) -> Sequence[tuple[str, bytes]] | None:
        """One round trip."""
        self.taken += [(f"1-{len(self.taken) + at}", one) for at, one in enumerate(data, 1)]
        return [one for one in self.taken if after is None or read_id(one[0]) > after][:most]

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.slow
@pytest.mark.parametrize("relay", [None, Store()])
async def test_an_answer_of_many_calls_holds_nobody_up(relay: Store | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls are looked through for secrets in many turns of the event loop, with a bounded part in each."""
    looked: list[int] = []
    before = [0]

    def noted(fields: dict[str, Value], content: str) -> dict[str, Value]:
        before[0] += len(str(fields["gen_ai.tool.call.arguments"]))
        return finished(fields, content)

    async def go_on() -> None:
        while True:
            looked.append(before[0])
            before[0] = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(kept, "finished", noted)
    feed = Feed(content="full", relay=relay)
    reader = await feed.open(ALL)
    for at in range(300):
        feed.take(CallSeen(NOWHERE, ToolCall(f"c{at}", "search", "x" * 5000), "none"))
    others = asyncio.create_task(go_on())
    found = await read(reader, 300)
    others.cancel()
    assert [one["gen_ai.tool.call.id"] for one in found] == [f"c{at}" for at in range(300)]
    turns = sum(1 for one in looked if one)
    assert turns >= 300 * 4000 // TURN
    assert max(looked) <= 2 * TURN


@pytest.mark.slow
async def test_a_burst_drops_nobody_who_reads() -> None:
    """More than may wait for a reader, in one answer of a model: whoever reads gets all of it."""
    feed = Feed(content="full")
    reader = await feed.open(ALL)
    number = 2 * MOST_WAITING // 4000
    for at in range(number):
        feed.take(CallSeen(NOWHERE, ToolCall(f"c{at}", "search", "x" * 5000), "none"))
    found = await read(reader, number)
    assert [one["gen_ai.tool.call.id"] for one in found] == [f"c{at}" for at in range(number)]


async def test_equal_choices_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty readers without filter, or with the same, cost one time of writing."""
    written: list[Choice] = []

    def noted(new: Sequence[FeedEvent], choice: Choice) -> bytes:
        written.append(choice)
        return write(new, choice)

    monkeypatch.setattr(module, "write", noted)
    feed = Feed()
    blown = Choice(kinds=frozenset({"refused"}))
    readers = [await feed.open(choice) for choice in (ALL, blown) for _ in range(25)]
    feed.take(EVENT)
    for reader in readers:
        await read(reader)
    assert len(written) == 2
    assert {*written} == {ALL, blown}


async def test_an_event_is_never_both_old_and_new() -> None:
    """Whoever comes back in the midst of events gets each once."""
    feed = Feed()
    other = await feed.open(ALL)
    for blocks in range(10):
        feed.take(FuseBlown(NOWHERE, blocks))
    reader = await feed.open(ALL, (0, 0))
    feed.take(FuseBlown(NOWHERE, 10))
    found = await read(reader, 12)
    assert [one.get("callfuse.blocks") for one in found] == [None, *range(11)]
    assert [one["callfuse.blocks"] for one in await read(other, 11)] == [*range(11)]


async def test_events_of_threads_are_handed_out() -> None:
    """Work on long bodies happens in threads."""
    feed = Feed()
    reader = await feed.open(ALL)
    await asyncio.sleep(0)
    await asyncio.gather(*(asyncio.to_thread(feed.take, EVENT) for _ in range(20)))
    assert len(await read(reader, 20)) == 20


async def test_readers_are_limited() -> None:
    """Those that leave make room."""
    feed = Feed(most_readers=2)
    one, _ = await feed.open(ALL), await feed.open(ALL)
    with pytest.raises(FullError):
        await feed.open(ALL)
    feed.close(one)
    feed.close(one)
    await feed.open(ALL)


async def test_without_readers_no_task_runs() -> None:
    """An event is only kept, until somebody comes."""
    feed = Feed()
    feed.take(EVENT)
    assert feed._task._task is None
    reader = await feed.open(ALL)
    task = feed._task._task
    assert task is not None
    feed.close(reader)
    async with asyncio.timeout(60):
        await task


def test_the_ring_is_bounded_in_events_and_bytes() -> None:
    """What is dropped is told by its floor."""
    ring: Ring[FeedEvent] = Ring((0, 0), most_events=3, most_bytes=100)
    for number in range(1, 6):
        ring.add(WrittenEvent((number, 0), b"x" * 10))
    assert (len(ring), ring.size, ring.floor) == (3, 30, (2, 0))
    assert [entry.id[0] for entry in ring.after((3, 5))[0]] == [4, 5]
    assert (ring.after((2, 0))[1], ring.after((1, 9))[1]) == (False, True)
    ring.add(WrittenEvent((6, 0), b"x" * 99))
    assert (len(ring), ring.size, ring.floor) == (1, 99, (5, 0))


async def test_a_restart_is_told_as_missing() -> None:
    """The id is of a process before."""
    feed = Feed(clock=lambda: 2000.0)
    reader = await feed.open(ALL, (1_999_000, 0))
    assert await anext(reader.chunks()) is MISSED


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1-2-3", "a-b", "1 -2", "١-٢", "9" * 400 + "-0"])
def test_no_other_text_is_an_id(text: str) -> None:
    """It says what would be right."""
    with pytest.raises(ValueError, match="use an id of this feed"):
        read_id(text)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"callfuse.event":"a"}\n\nevent: b', b'{"callfuse.event":"<b>"}', b'{"a":1,"callfuse.event":"a"}'],
)
def test_what_others_write_into_the_stream_is_not_sent(data: bytes) -> None:
    """A frame is one event, whatever the store holds."""
    assert WrittenEvent.read("1-0", data) is None
    assert WrittenEvent.read("x", b'{"callfuse.event":"a"}') is None
    entry = WrittenEvent.read("1-0", b'{"callfuse.event":"a"}')
    assert entry is not None
    assert entry.frame() == b'id: 1-0\nevent: a\ndata: {"callfuse.event":"a"}\n\n'


@pytest.mark.parametrize(
    "data",
    [
        b'{"callfuse.event":"finding","callfuse.finding.kind":["x"],"gen_ai.conversation.id":{"a":1}}',
        b'{"callfuse.event":"finding","callfuse.finding.kinds":7,"gen_ai.conversation.id":"s"}',
        b'{"callfuse.event":"finding","callfuse.finding.kinds":[["x"],{}],"gen_ai.conversation.id":"s"}',
        b'{"callfuse.event":"finding","callfuse.event":[1]}',
        b'{"callfuse.event":"finding",' + b"[" * 10_000 + b"}",
    ],
)
def test_values_of_any_shape_are_not_chosen(data: bytes) -> None:
    """By no filter, and no reader is the worse for it."""
    entry = WrittenEvent.read("1-0", data)
    assert entry is not None
    for choice in (Choice(kinds=frozenset({"repeat"})), Choice(frozenset({"abc"}), frozenset({"repeat"}))):
        assert not choice.takes(entry)


def finding() -> FindingSeen:
    """One with a secret in arguments and result, and with lines that would be frames."""
    call = ToolCall("c1", "search", '{"q": "a\\n\\nevent: x", "api_key": "sk-12345678901234567890"}' + "y" * 5000)
    found = Finding(
        "repeat", "search", call.signature, 3, 3, 300, False, previous="token: s3cr3t-of-a-result\n\nid: 1" + "z" * 5000
    )
    return FindingSeen(NOWHERE, Verdict(call, found, Rung.BLOCK, 1, finding_id="f1"))


@pytest.mark.parametrize(
    ("content", "tool", "lengths"),
    [("none", False, (0, 0)), ("names", True, (0, 0)), ("short", True, (200, 200)), ("full", True, (4000, 4000))],
)
async def test_what_is_shown_of_calls_is_a_setting(content: str, tool: bool, lengths: tuple[int, int]) -> None:
    """Secrets are starred in whatever is shown, and no text breaks out of its frame."""
    feed = Feed(content=content)
    reader = await feed.open(ALL)
    event = finding()
    feed.take(event)
    feed.take(CallSeen(NOWHERE, event.verdict.call, "none"))
    for one in await read(reader, 2):
        assert ("gen_ai.tool.name" in one, "gen_ai.tool.call.id" in one) == (tool, tool)
        assert lengths[0] - STARRED <= len(one.get("gen_ai.tool.call.arguments", "")) <= lengths[0]
        if one["callfuse.event"] == "finding":
            assert lengths[1] - STARRED <= len(one.get("gen_ai.tool.call.result", "")) <= lengths[1]
        assert "12345678901234567890" not in str(one)
        assert "s3cr3t" not in str(one)


@pytest.mark.parametrize(
    ("content", "told", "result"), [("none", 0, 0), ("names", 0, 0), ("short", 1000, 200), ("full", 4000, 300)]
)
async def test_texts_for_the_model_and_results_too(content: str, told: int, result: int) -> None:
    """Bounded and starred as arguments are; what is cut is named."""
    feed = Feed(content=content)
    reader = await feed.open(ALL)
    bus = Bus(feed)
    assert bus.wants(ResultSeen)
    outcome = outcome_of("token: s3cr3t-of-a-result" + "z" * 5000)
    assert outcome is not None
    bus.emit(ActionTaken(NOWHERE, "f1", "steer", True, told="password=s3cr3t " + "y" * 5000))
    bus.emit(ResultSeen(NOWHERE, "c1", finding().verdict.call.signature, outcome))
    action, came = await read(reader, 2)
    starred = len("s3cr3t") - len("***")
    assert len(action.get("callfuse.told", "")) == max(0, told - starred)
    assert action.get("callfuse.cut") == (["callfuse.told"] if told else None)
    assert (len(came.get("gen_ai.tool.call.result", "")) <= result, came["callfuse.call.outcome"]) == (True, "ok")
    assert ("gen_ai.tool.call.id" in came) == (content != "none")
    assert "s3cr3t" not in str([action, came])


async def test_a_feed_is_a_sink() -> None:
    """Findings are chosen by their kind, too."""
    feed = Feed()
    Bus(feed).emit(finding())
    reader = await feed.open(Choice(kinds=frozenset({"repeat"})), (0, 0))
    assert [one.get("callfuse.finding.kind") for one in await read(reader, 2)] == [None, "repeat"]
    other = await feed.open(Choice(kinds=frozenset({"cycle", "blown"})))
    feed.take(finding())
    feed.take(FuseBlown(NOWHERE, 1))
    assert [one["callfuse.event"] for one in await read(other)] == ["blown"]


async def test_what_nobody_reads_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exchange waits while its texts are searched for secrets; whoever reads pays once for all."""
    written: list[str] = []

    def noted(fields: dict[str, Value], content: str) -> dict[str, Value]:
        written.append(content)
        return finished(fields, content)

    monkeypatch.setattr(kept, "finished", noted)
    feed = Feed()
    for _ in range(10):
        feed.take(finding())
    assert written == []
    assert feed._ring.size > 10 * 1024
    readers = [await feed.open(ALL, (0, 0)) for _ in range(5)]
    for reader in readers:
        assert len(await read(reader, 11)) == 11
    assert len(written) == 10
