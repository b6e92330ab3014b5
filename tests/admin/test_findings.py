"""How many loops there were, and which: the endpoint `findings`, over HTTP."""

import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callfuse.observe.events import FindingSeen
from tests.admin.asking import BEARER, PATH, Guarded
from tests.support.asgi import JSON_REQUEST, drive
from tests.support.kits import KITS
from tests.support.meeting import ask, reply
from tests.support.observing import Observed
from tests.support.plain import again, spin
from tests.support.scripted import ScriptedApp

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


class Looping(Guarded):
    """A guarded model that loops in each session, and its admin page."""

    def __init__(self, **config: Any) -> None:
        loop = {"mode": "chance_then_block"}
        super().__init__({"tool_call_loop": loop, **config}, vendor=self._vendor)
        self.seen = Observed()
        self.fuse.bus.add(self.seen)

    async def _vendor(self, scope: Any, receive: Any, send: Any) -> None:
        await ScriptedApp((reply(CHAT, again(), stream=False),))(scope, receive, send)

    async def loop(self, session: str) -> list[str]:
        """A session loops: it is steered, and then blocked. Returns the ids of its findings."""
        before = len(self.seen.of(FindingSeen))
        headers = (*JSON_REQUEST, (b"x-session-id", session.encode()))
        await drive(self.app, ask(CHAT, spin(), stream=False, headers=headers))
        return [one.finding_id for one in self.seen.of(FindingSeen)[before:]]


@pytest.fixture
async def looping() -> AsyncIterator[Looping]:
    """Two sessions that have looped."""
    it = Looping()
    for session in ("one", "=two"):
        assert len(await it.loop(session)) == 2
    yield it
    it.admin.close()


async def test_how_many_and_which(looping: Looping) -> None:
    """Two loops of two findings each, the newest first, and where they are kept."""
    told = await looping.told("findings")
    assert (told["findings"], told["loops"]) == (4, 2)
    assert [(row["session"], row["action"], row["count"], row["limit"]) for row in told["rows"]] == [
        ("=two", "block", 4, 3), ("=two", "steer", 3, 3), ("one", "block", 4, 3), ("one", "steer", 3, 3),
    ]  # fmt: skip
    assert told["kept"] == {"in": "memory", "days": 30, "dropped": 0, "alone": False}
    assert told["values"]["tool"] == [{"value": "search", "findings": 4, "loops": 2}]


async def test_loops_one_by_one(looping: Looping) -> None:
    """A row for each, with what was done about it."""
    told = await looping.told("findings", "by=loop&session=one")
    (row,) = told["rows"]
    assert (row["findings"], row["actions"], row["session"], row["kind"]) == (2, "steer,block", "one", "repeat")
    assert (told["findings"], told["loops"], told["by"]) == (2, 1, "loop")


async def test_as_csv(looping: Looping) -> None:
    """All rows, whatever the page; no cell is a formula."""
    exchange = await looping.get("findings", "format=csv&size=1&sort=time")
    assert exchange.header(b"content-type") == b"text/csv; charset=utf-8"
    assert exchange.header(b"content-disposition") == b'attachment; filename="callfuse-findings.csv"'
    rows = [*csv.DictReader(io.StringIO(exchange.body.decode()))]
    assert [row["session"] for row in rows] == ["one", "one", "'=two", "'=two"]
    assert rows[0]["time"].endswith("+00:00")
    loops = await looping.get("findings", "format=csv&by=loop")
    assert [row["actions"] for row in csv.DictReader(io.StringIO(loops.body.decode()))] == ["steer,block"] * 2


@pytest.mark.parametrize(
    ("query", "why"),
    [("kind=repeats", "kind = 'repeats'; did you mean repeat?"), ("tol=x", "did you mean tool?")],
)
async def test_a_wrong_question_is_told(looping: Looping, query: str, why: str) -> None:
    """With what would be right."""
    exchange = await looping.get("findings", query)
    assert exchange.status == 400
    assert why in json.loads(exchange.body)["error"]


async def test_nobody_without_the_token_asks(looping: Looping) -> None:
    """Neither for the list nor for a finding."""
    for below in ("findings", "findings/detail"):
        assert (await looping.get(below, headers=())).status == 401


async def test_what_is_known_of_a_finding(looping: Looping) -> None:
    """As the live page has it: the session, the call, and what became of it."""
    finding = looping.seen.of(FindingSeen)[0].finding_id
    told = await looping.told("findings/detail", f"id={finding}")
    assert (told["session"], told["is_kept"]) == ("one", False)
    bead = next(one for lane in told["lanes"] for one in lane["beads"] if one["id"] == told["bead"])
    assert bead["finding"]["id"] == finding
    exchange = await looping.get("findings/detail", "id=unknown")
    assert exchange.status == 404


async def test_beyond_a_restart(tmp_path: Path) -> None:
    """With a file, another process tells the same of it: the call, the finding, what the client got, what was said."""
    config = {"findings": {"path": str(tmp_path / "findings.db"), "keep_days": 7}}
    before = Looping(**config)
    _, blocked = await before.loop("one")
    body = json.dumps({"finding": blocked, "kind": "true_positive"}).encode()
    assert (await before.ask(f"{PATH}/feedback", BEARER, method="POST", body=body)).status == 200
    before.admin.close()
    after = Looping(**config)
    told = await after.told("findings", "range=all")
    assert (told["findings"], told["loops"], told["kept"]["in"], told["kept"]["days"]) == (2, 1, "file", 7)
    shown = await after.told("findings/detail", f"id={blocked}")
    assert (shown["session"], shown["is_kept"], shown["model"]) == ("one", True, told["rows"][0]["model"])
    ((bead,),) = (lane["beads"] for lane in shown["lanes"])
    assert (bead["tool"], bead["action"], bead["feedback"]) == ("search", "block", "true_positive")
    assert "zebra" in bead["arguments"]
    assert bead["finding"]["id"] == blocked
    assert bead["told"].startswith("[callfuse]")
    after.admin.close()
