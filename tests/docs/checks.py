"""What is looked at after a Python block has run, where there is more to see than that it runs."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx

from callfuse.testing import served
from tests.docs import started
from tests.docs.snippets import Left, check_guarded
from tests.docs.world import TIMEOUT_S
from tests.hosts import client

SECRET = "a-secret-of-your-own"
HEADERS = {"x-session-id": "abc"}


def _admin(left: Left) -> None:
    """The app is guarded, and its page there for the token."""
    check_guarded(left["app"])
    with served(left["app"]) as url, httpx.Client(base_url=url, trust_env=False, timeout=TIMEOUT_S) as http:
        assert http.get("/_callfuse/settings").status_code == 401
        answer = http.get("/_callfuse/settings", headers={"authorization": f"Bearer {SECRET}"})
        assert answer.status_code == 200


def _guarded_tools(left: Left) -> None:
    """The call has run, and its result is a message."""
    assert left["messages"] == [{"role": "tool", "tool_call_id": "c1", "name": "search", "content": "llamas"}]


def _detector(left: Left) -> None:
    """Of five equal calls the third and the fourth bring a warning, and the fifth does not run."""
    read = []
    for _ in range(5):
        read.append(left["content"].split("[callfuse]")[0])
        left.again()
    assert read == ["x", "x", "x\n\n", "x\n\n", ""]


def _executed(app: Any, tool: str = client.TOOL, after_one: Callable[[], None] = lambda: None) -> int:
    """How many calls an agent of a model that loops executes, of eight; `after_one` is called after the first."""
    messages: list[Any] = [{"role": "user", "content": "Run the tests."}]
    tools = [{"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}}]
    with served(app) as url, client.open_client(url) as http:
        http.headers.update(HEADERS)
        for executed in range(client.MOST_ROUNDS):
            body = {"model": "stubborn", "messages": messages, "tools": tools, "stream": True}
            messages.append(client.ask(http, client.PATH, body))
            calls = messages[-1].get("tool_calls") or ()
            if not calls:
                return executed
            messages += [{"role": "tool", "tool_call_id": one["id"], "content": "1 failed"} for one in calls]
            if executed == 0:
                after_one()
    return client.MOST_ROUNDS


def _session_settings(left: Left) -> None:
    """Two warnings from the fourth call on, then a block; in a session with `max_repeats: 6` from the fifth on, where
    `no_news` begins."""
    assert _executed(left["app"]) == 5
    left.again()
    set_session = partial(left["be_patient"], "abc", HEADERS)
    assert _executed(left["app"], after_one=lambda: asyncio.run(set_session())) == 6


def _on_loop(left: Left) -> None:
    """The tool for which the callback says so loops; another does not."""
    assert _executed(left["app"], "run_tests") == client.MOST_ROUNDS


def _access_level(left: Left) -> None:
    """A mounted middleware now writes a line for each exchange."""
    assert left["logging"].getLogger("callfuse.access").isEnabledFor(20)


def _alarm(left: Left) -> None:
    """Somebody is paged for a block."""
    _executed(left["middleware"])
    [(session, finding_id), *_] = left["paged"]
    assert session == "abc"
    assert finding_id


def _signature(left: Left) -> None:
    """The signature of the delivery is right."""
    assert left["is_right"]


def _metrics(left: Left) -> None:
    """The host's registry has callfuse's metrics."""
    shown = {metric.name for metric in left["REGISTRY"].collect()}
    assert "callfuse_exchanges" in shown


def _mcp(left: Left) -> None:
    """Of eight equal calls of a tool of the server two run."""
    from tests.hosts import mcp_scenarios as scenarios

    runs: list[int] = []

    def add(a: int, b: int) -> int:
        runs.append(a)
        return a + b

    left["server"].tool()(add)
    with served(left["app"]) as url:
        results = asyncio.run(scenarios.with_sdk(f"{url}/mcp"))
    assert len(runs) == 2
    assert [len(one["texts"]) for one in results] == [1, 1, 2, 2, 2, 2, 2, 2]


CHECKS: Mapping[tuple[str, str], Callable[[Left], None]] = {
    ("docs/admin.md", "from fastapi"): _admin,
    ("docs/agents.md", "from callfuse import GuardedTools"): _guarded_tools,
    ("docs/agents.md", "detector = "): _detector,
    ("docs/mount/mcp.md", "from mcp.server"): _mcp,
    ("docs/observing.md", "import logging"): _access_level,
    ("docs/verdict.md", "# verdict.py"): started.check_verdict,
    ("docs/observing.md", "from callfuse.observe import events"): _alarm,
    ("docs/observing.md", "import hmac"): _signature,
    ("docs/observing.md", "from prometheus_client"): _metrics,
    ("docs/settings.md", "from callfuse import CallFuseMiddleware, ToolCallLoopConfig"): _session_settings,
    ("docs/settings.md", "def on_loop"): _on_loop,
}
"""By page and beginning of the block."""
