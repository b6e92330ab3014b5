"""Two workers of `callfuse serve` over one Redis: what an operator changes at one holds at both."""

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import quote

from tests.cli.test_metrics import BEARER, CHAT, redis, upstream
from tests.cli.test_serve import PATIENCE_S, Served, serving
from tests.support.meeting import MARK, ask
from tests.support.plain import spin
from tests.support.redis import RedisServer

__all__ = ["redis", "upstream"]

SESSION = "my own session"
TIMES = 12
"""Connections, which the workers take as they come."""


def post(served: Served, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Status and body of the answer, over a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def is_blocked(served: Served) -> bool:
    """Whether a loop is blocked, in one exchange."""
    request = ask(CHAT, spin(2), stream=False)
    headers = {"content-type": "application/json", "x-session-id": SESSION, "authorization": "Bearer key"}
    status, body = post(served, request.path, request.body, headers)
    assert status == 200
    return MARK.encode() in body


def change(served: Served, values: dict[str, str | None]) -> Any:
    """Change the session's settings at one of the workers."""
    path = f"/_callfuse/change?session={quote(SESSION)}"
    status, body = post(served, path, json.dumps(values).encode(), BEARER)
    assert status == 200, body
    return json.loads(body)


def test_a_change_holds_at_both(upstream: str, redis: RedisServer) -> None:
    """From the next request on; either lists the session, shows what can be changed, and resets its fuse."""
    env = {"TOOL_LOOP_MODE": "block", "CALLFUSE_BLOW_AFTER": "0", "CALLFUSE_STORE_TIMEOUT_S": "20"}
    with serving("--upstream", upstream, "--workers", "2", "--store", redis.url, **env) as served:
        assert all(is_blocked(served) for _ in range(TIMES))
        for _ in range(2):
            assert change(served, {"tool-loop-mode": "observe"}) == {"changed": [SESSION]}
            assert not any(is_blocked(served) for _ in range(TIMES))
            for _ in range(TIMES):
                with served.asked("/_callfuse/sessions", BEARER) as answer:
                    (listed,) = json.loads(answer.read())
                assert (listed["session"], listed["set"]) == (SESSION, {"mode": "observe"})
            assert change(served, {"tool-loop-mode": None}) == {"changed": [SESSION]}
            assert all(is_blocked(served) for _ in range(TIMES))
        for _ in range(TIMES):
            status, body = post(served, f"/_callfuse/reset?session={quote(SESSION)}", b"", BEARER)
            assert (status, json.loads(body)) == (200, {"reset": [SESSION]})
