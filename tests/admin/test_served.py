"""The page of a running `callfuse serve`."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import callfuse, callfuse_here
from tests.cli.test_reload import eventually, told, vendor
from tests.cli.test_serve import TOKEN, Served, serving

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def upstream() -> Iterator[str]:
    """A vendor who answers everything with his name."""
    with vendor(b"vendor") as url:
        yield url


def asked(served: Served, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Status and body of the answer to a GET."""
    with served.asked(path, headers) as answer:
        return answer.status, answer.read().decode()


def rows(served: Served, query: str = "") -> dict[str, Any]:
    """The settings that are shown, by key."""
    status, body = asked(served, f"/_callfuse/settings{query}", BEARER)
    assert status == 200
    return {row["key"]: row for row in json.loads(body)}


def test_the_settings_of_a_server(upstream: str, tmp_path: Path) -> None:
    """They are what `config explain` says of the same sources, and after a reload those of the new file; what holds
    from the next start on only is as it was."""
    file = tmp_path / "c.yaml"
    file.write_text(
        f"tool_call_loop: {{models: {{'openai:*': {{mode: block}}}}}}\nserve: {{upstream: {upstream}, workers: 1}}\n"
    )
    env = {"CALLFUSE_CONFIG": str(file), "TOOL_LOOP_TTL_SECONDS": "30"}
    with serving(**env) as served:
        assert asked(served, "/_callfuse/health", {})[0] == 200
        assert asked(served, "/_callfuse/", {})[0] == 401
        assert asked(served, "/v1/models", {}) == (200, "vendor")
        shown = rows(served, "?model=openai:gpt-4o&tool=search_web")
        explained = callfuse("config", "explain", "--json", "--model", "openai:gpt-4o", "--tool", "search_web", **env)
        expected = {row["key"]: row for row in json.loads(explained.stdout)}
        port = {"key": "serve.port", "value": 0, "tier": "server", "source": "option --port"}
        assert shown == {**expected, "serve.port": port}
        if not hasattr(signal, "SIGHUP"):
            return
        file.write_text(f"tool_call_loop: {{window: 20}}\nserve: {{upstream: {upstream}, workers: 3}}\n")
        served.process.send_signal(signal.SIGHUP)
        told(served, "reloaded ")
        shown = rows(served)
        assert (shown["tool_call_loop.window"]["value"], shown["serve.workers"]["value"]) == (20, 1)
        assert shown["tool_call_loop.window"]["source"] == f"{file}, line 1"
        assert '<th scope="row"><code>tool_call_loop.window' in asked(served, "/_callfuse/plain", BEARER)[1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_token_is_made_up(upstream: str, workers: str) -> None:
    """And printed once, at the start; it is that of every worker."""
    with serving("--upstream", upstream, "--workers", workers, CALLFUSE_ADMIN_TOKEN="") as served:
        eventually(served, b"vendor")
        assert served.process.stderr is not None
        found = re.fullmatch(
            rf"callfuse admin page: http://127\.0\.0\.1:{served.port}/_callfuse/ with the token ([\w-]{{43}}) "
            r"\(new at each start; CALLFUSE_ADMIN_TOKEN sets one\)\n",
            served.process.stderr.readline(),
        )
        assert found is not None
        for _ in range(10):
            assert asked(served, "/_callfuse/settings", {"authorization": f"Bearer {found[1]}"})[0] == 200
            assert asked(served, "/_callfuse/settings", BEARER)[0] == 401
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert found[1] not in served.greeting + printed
    assert "Traceback" not in printed


def test_disabled_the_path_is_the_vendor_s(upstream: str) -> None:
    """As if there were no page; no token is made up."""
    with serving("--upstream", upstream, CALLFUSE_ADMIN_ENABLED="off", CALLFUSE_ADMIN_TOKEN="") as served:
        assert asked(served, "/_callfuse/health", {}) == (200, "vendor")
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "admin" not in printed


@pytest.mark.parametrize(
    ("name", "what"), [("CALLFUSE_ADMIN_TOKEN", "admin token"), ("CALLFUSE_GUARDRAIL_KEY", "guardrail key")]
)
def test_a_token_that_could_be_guessed_is_refused(name: str, what: str) -> None:
    """At the start, without printing it."""
    ended = callfuse_here("serve", "--upstream", "http://127.0.0.1:9", **{name: "s3cret"})
    assert ended.returncode == 2
    assert f"  the {what} (environment variable {name}) is too short, or has " in ended.stderr
    assert "s3cret" not in ended.stderr
