"""Somebody says of a finding what it was: over HTTP with the token, counted, and kept in a file where one is named."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.admin import AdminApp
from callfuse.admin.app import LONGEST_FORM, AdminMount
from callfuse.config.serve import AdminSettings
from callfuse.observe import findings
from callfuse.observe.events import FEEDBACK, FeedbackGiven, FindingSeen
from callfuse.stores.keys import finding_key
from callfuse.stores.redis import RedisLedger
from tests.admin.asking import BEARER, FORM, PATH, TOKEN
from tests.support.asgi import App, Exchange, Headers, Request, drive
from tests.support.config import settings
from tests.support.kits import KITS
from tests.support.meeting import ask, reply
from tests.support.observing import Observed
from tests.support.plain import again, spin
from tests.support.redis import RedisServer, program, running
from tests.support.scripted import play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


class Worker:
    """A guarded model with its admin page."""

    def __init__(self, store: str | None = None, **admin: Any) -> None:
        config = {**settings("block"), "admin": admin}
        self.fuse = CallFuseMiddleware(play(reply(CHAT, again(), stream=False)), config, store=store)
        self.seen = Observed()
        self.fuse.bus.add(self.seen)
        self.app: App = AdminMount(self.fuse, AdminApp(self.fuse, token=TOKEN), AdminSettings())

    async def find(self) -> str:
        """A finding: its id."""
        await drive(self.app, ask(CHAT, spin(), stream=False))
        return self.seen.of(FindingSeen)[-1].finding_id

    async def post(self, body: object, headers: Headers = BEARER, method: str = "POST") -> Exchange:
        """What is posted, as JSON unless it is bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await drive(self.app, Request(f"{PATH}/feedback", content, headers, method))

    async def say(self, finding: str, kind: str = "false_positive") -> tuple[int, dict[str, Any]]:
        """What is said of a finding; returns the status and JSON of the answer."""
        told = await self.post({"finding": finding, "kind": kind})
        return told.status, json.loads(told.body)


async def test_it_is_counted_and_told() -> None:
    """By what was said and the kind of the finding; said again, it counts once, and the last word may differ."""
    worker = Worker()
    finding = await worker.find()
    status, told = await worker.say(finding)
    assert status == 200
    assert {key: told[key] for key in ("finding", "feedback", "kind", "tool", "count", "threshold", "action")} == {
        "finding": finding, "feedback": "false_positive", "kind": "repeat", "tool": "search",
        "count": 3, "threshold": 3, "action": "block",
    }  # fmt: skip
    assert told["counted"]
    assert not (await worker.say(finding))[1]["counted"]
    assert worker.seen.one(FeedbackGiven) == FeedbackGiven(finding, "false_positive", "repeat", "search")
    assert (await worker.say(finding, "true_positive"))[1]["counted"]
    assert worker.fuse.counts.of("feedback", "false_positive repeat") == 1
    assert worker.fuse.counts.of("feedback") == 2


async def test_what_is_no_feedback() -> None:
    """Is refused with what would be right, and counts nothing."""
    worker = Worker()
    finding = await worker.find()
    wrong: list[tuple[object, int, str]] = [
        ({"finding": "0" * 16, "kind": "false_positive"}, 404, "no finding with this id"),
        ({"finding": finding, "kind": "nonsense"}, 400, ", ".join(FEEDBACK)),
        ({"finding": finding, "kind": ["false_positive"]}, 400, ", ".join(FEEDBACK)),
        ({"finding": finding}, 400, ", ".join(FEEDBACK)),
        ({"finding": 7, "kind": "false_positive"}, 400, "the id of a finding"),
        ({"finding": "x" * 101, "kind": "false_positive"}, 400, "the id of a finding"),
        ({"finding": finding, "kind": "false_positive", "by": "me"}, 400, "'by'"),
        ([], 400, "this is not an object"),
        (b"finding=1", 400, "this is not JSON"),
        (b"[" * 4000, 400, "this is not JSON"),
        (b"", 400, "this is not JSON"),
    ]
    for body, status, why in wrong:
        told = await worker.post(body)
        assert (told.status, why in json.loads(told.body)["error"]) == (status, True), told.body
    assert (await worker.post(b"x" * (LONGEST_FORM + 1))).status == 413
    assert worker.seen.of(FeedbackGiven) == []


async def test_who_may_say_it() -> None:
    """Who has the token or the cookie; no page of another site in somebody's browser, and nobody by a GET."""
    worker = Worker()
    said = {"finding": await worker.find(), "kind": "false_positive"}
    assert (await worker.post(said, ())).status == 401
    assert (await worker.post(said, ((b"authorization", b"Bearer nonsense-nonsense"),))).status == 401
    login = await drive(worker.app, Request(f"{PATH}/", f"token={TOKEN}".encode(), FORM))
    cookie = (login.header(b"set-cookie") or b"").partition(b";")[0]
    for headers, status in (
        (((b"sec-fetch-site", b"cross-site"),), 403),
        (((b"origin", b"http://evil.example"), (b"host", b"here.test")), 403),
        (((b"sec-fetch-site", b"same-origin"),), 200),
    ):
        assert (await worker.post(said, ((b"cookie", cookie), *headers))).status == status
    assert (await worker.post(said, method="GET")).status == 405
    assert worker.fuse.counts.of("feedback") == 1


async def test_the_file(tmp_path: Path) -> None:
    """A line of JSON each, without a word of arguments or results; what is there stays."""
    path = tmp_path / "feedback.jsonl"
    path.write_text('{"kept": true}\n')
    worker = Worker(feedback_file=str(path))
    finding = await worker.find()
    for kind in ("false_positive", "true_positive"):
        await worker.say(finding, kind)
    before, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert before == {"kept": True}
    assert [(line["finding"], line["feedback"], line["tool"]) for line in lines] == [
        (finding, "false_positive", "search"),
        (finding, "true_positive", "search"),
    ]
    assert "zebra" not in path.read_text()


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Is an error at the start; later on the answer says so, and nothing is counted that is not kept."""
    with pytest.raises(ConfigError, match=r"admin\.feedback_file"):
        Worker(feedback_file=str(tmp_path / "nowhere" / "feedback.jsonl"))
    folder = tmp_path / "folder"
    folder.mkdir()
    worker = Worker(feedback_file=str(folder / "feedback.jsonl"))
    finding = await worker.find()
    (folder / "feedback.jsonl").unlink()
    folder.rmdir()
    status, told = await worker.say(finding)
    assert (status, "admin.feedback_file" in told["error"]) == (500, True)
    assert worker.fuse.counts.of("feedback") == 0


async def test_the_oldest_findings_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number, so that no client fills the memory."""
    monkeypatch.setattr(findings, "MOST", 2)
    worker = Worker()
    ids = [await worker.find() for _ in range(3)]
    assert [(await worker.say(one))[0] for one in ids] == [404, 200, 200]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A store that workers share."""
    if program() is None:
        pytest.skip("needs redis-server")
    yield from running()


@pytest.fixture
async def pair(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two workers with one store and one file."""
    monkeypatch.setenv("CALLFUSE_STORE_TIMEOUT_S", "20")
    one, other = [Worker(server.url, feedback_file=str(tmp_path / "said.jsonl")) for _ in range(2)]
    yield one, other
    for worker in (one, other):
        await sent(worker)


async def sent(worker: Worker) -> None:
    """Wait until what a worker has found has reached the server: no exchange does."""
    assert isinstance(worker.fuse.ledger, RedisLedger)
    await worker.fuse.ledger.aclose()


async def test_two_workers_with_one_store(pair: tuple[Worker, Worker]) -> None:
    """Either takes what is said of a finding of the other, and it counts once for both."""
    one, other = pair
    finding = await one.find()
    await sent(one)
    assert (await other.say("1" * 16))[0] == 404
    status, told = await other.say(finding)
    assert (status, told["counted"], told["kind"], told["tool"]) == (200, True, "repeat", "search")
    assert not (await one.say(finding))[1]["counted"]
    assert [worker.fuse.counts.of("feedback") for worker in pair] == [0, 1]


async def test_what_was_said_last_at_any_worker_counts(pair: tuple[Worker, Worker], tmp_path: Path) -> None:
    """Whoever thinks better of it is counted again, wherever he says so."""
    finding = await pair[0].find()
    await sent(pair[0])
    said = ("false_positive", "too_late", "too_late", "false_positive")
    counted = [(await pair[at % 2].say(finding, kind))[1]["counted"] for at, kind in enumerate(said)]
    assert counted == [True, True, False, True]
    lines = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [line["feedback"] for line in lines] == list(said)
    assert {(line["finding"], line["session"]) for line in lines} == {(finding, lines[0]["session"])}


async def test_a_store_that_is_down(pair: tuple[Worker, Worker], server: RedisServer, tmp_path: Path) -> None:
    """Each worker takes what is said of its own findings; of another's it says why it cannot, and keeps nothing."""
    one, other = pair
    finding = await one.find()
    await sent(one)
    server.end()
    for _ in range(2):  # as it fails, and as it is left alone
        status, told = await other.say(finding)
        assert (status, other.fuse.counts.of("feedback")) == (503, 0)
        assert f"the store redis://127.0.0.1:{server.port} cannot be used: " in told["error"]
        assert told["error"].endswith("; nothing was counted")
    assert not (tmp_path / "said.jsonl").read_text()
    status, told = await one.say(finding)
    assert (status, told["counted"]) == (200, True)
    assert not (await one.say(finding))[1]["counted"]


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{}", b"\xff", b'{"finding_id": 1}', b"[" * 9000])
async def test_what_another_program_has_written(pair: tuple[Worker, Worker], server: RedisServer, value: bytes) -> None:
    """It is no finding."""
    with closing(server.client()) as client:
        client.set(finding_key("5f0c9a7be31d2846"), value)
    assert (await pair[0].say("5f0c9a7be31d2846"))[0] == 404


@pytest.mark.parametrize("finding", ["*", "a\r\nSET x 1", "\x00", "\ud800", "é" * 100, "callfuse:{events}:feed"])
async def test_hostile_ids_reach_no_key_of_the_store(
    pair: tuple[Worker, Worker], server: RedisServer, finding: str
) -> None:
    """They are unknown, and nothing is written."""
    assert (await pair[0].say(finding))[0] in (400, 404)
    assert server.stored() == []
