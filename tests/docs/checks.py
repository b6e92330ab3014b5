"""What is looked at after a Python block has run, where there is more to see than that it runs."""

import asyncio
from collections.abc import Callable, Mapping

import httpx
import pytest

from callfuse.testing import ScriptedVendor, looping_model, served
from tests.docs import started
from tests.docs.snippets import Left
from tests.docs.world import TIMEOUT_S, run_agent
from tests.hosts import client

SECRET = "a-secret-of-your-own"


def _admin(left: Left) -> None:
    """The app is guarded, and its page there for the token."""
    left.check_guarded("app")
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


def _session_settings(left: Left) -> None:
    """Two warnings from the fourth call on, then a block; in a session with `max_repeats: 6` from the fifth on, where
    `no_news` begins."""
    with served(left["app"]) as url:
        assert run_agent(url, "stubborn", tool=client.TOOL) == 5
        assert run_agent(url, "stubborn", tool=client.TOOL, session="abc", rounds=1) == 1
        asyncio.run(left["be_patient"]("abc", {"x-session-id": "abc", "authorization": "Bearer none"}))
        assert run_agent(url, "stubborn", tool=client.TOOL, session="abc") == 6


def _on_loop(left: Left) -> None:
    """The tool for which the callback says so loops; another does not."""
    with served(left["app"]) as url:
        assert run_agent(url, "m", tool="run_tests") == 8
        assert run_agent(url, "m", tool="search") == 2


def _access_level(left: Left) -> None:
    """A mounted middleware now writes a line for each exchange."""
    assert left["logging"].getLogger("callfuse.access").isEnabledFor(20)


def _own_callback(left: Left) -> None:
    """It was asked about each finding, and the mode's own rungs were taken."""
    with served(left["app"]) as url:
        assert run_agent(url, "m", tool=client.TOOL) == 3
    assert ("repeat", client.TOOL, 3, "steer") in left["seen"]


def _told(left: Left) -> None:
    """The third equal call was told."""
    assert left["found_kinds"] == ["repeat"]


def _own_tests(left: Left) -> None:
    """The page's tests pass; with a model that does not end, the agent of the page fails."""
    for name in ("test_a_model_that_listens", "test_a_model_that_does_not_listen"):
        left[name]()
    with (
        served(ScriptedVendor(looping_model("search_web", stubborn=True))) as url,
        pytest.raises(AssertionError, match="did not end"),
    ):
        left["run_agent"](url)


def _alarm(left: Left) -> None:
    """Somebody is paged for a block."""
    with served(left["middleware"]) as url:
        run_agent(url, "stubborn", tool=client.TOOL, session="abc")
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
    """Of eight equal calls of a tool of the server two run; the others get the notice as an error."""
    from tests.hosts import mcp_scenarios as scenarios

    runs: list[int] = []

    def add(a: int, b: int) -> int:
        runs.append(a)
        return a + b

    left["server"].tool()(add)
    with served(left["app"]) as url:
        results = asyncio.run(scenarios.with_sdk(f"{url}/mcp"))
    assert len(runs) == 2
    assert [one["texts"][0].startswith("[callfuse]") for one in results] == [False] * 2 + [True] * 6
    assert [one["is_error"] for one in results] == [False] * 2 + [True] * 6


CHECKS: Mapping[tuple[str, str], Callable[[Left], None]] = {
    ("docs/admin.md", "from fastapi"): _admin,
    ("docs/agents.md", "from callfuse import GuardedTools"): _guarded_tools,
    ("docs/agents.md", "detector = "): _detector,
    ("docs/mount/mcp.md", "from mcp.server"): _mcp,
    ("docs/observing.md", "import logging"): _access_level,
    ("docs/observing.md", "from callfuse.observe import"): _alarm,
    ("docs/observing.md", "import hmac"): _signature,
    ("docs/observing.md", "from prometheus_client"): _metrics,
    ("docs/settings.md", "from callfuse import CallFuseMiddleware, ToolCallLoopConfig"): _session_settings,
    ("docs/settings.md", "def on_loop"): _on_loop,
    ("docs/tasks/test-agent.md", "# test_agent.py"): _own_tests,
    ("docs/tasks/on-loop.md", "from callfuse import CallFuseMiddleware"): _own_callback,
    ("docs/tasks/on-loop.md", "from callfuse import LoopDetector"): _told,
    ("docs/verdict.md", "# verdict.py"): started.check_verdict,
}
"""By page and beginning of the block."""
