"""Wrong settings end the start of the server, where Starlette and FastAPI build the middleware too."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.mcp import MCPMiddleware
from tests.cli.processes import CLEAN
from tests.support.asgi import Request, drive

WRONG: dict[str, Any] = {"tool_call_loop": {"mode": "blok"}}
SAID = "callfuse cannot be mounted with these settings: tool_call_loop.mode = 'blok' (keyword): use one of"
ADDED = """
from starlette.applications import Starlette
from {module} import {name}

app = Starlette()
app.add_middleware({name}, config={{"tool_call_loop": {{"mode": "blok"}}}})
"""
WRAPPED = """
from starlette.applications import Starlette
from {module} import {name}

app = {name}(Starlette(), config={{"tool_call_loop": {{"mode": "blok"}}}})
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [ADDED, WRAPPED], ids=["added", "wrapped"])
@pytest.mark.parametrize("lifespan", ["auto", "on"])
@pytest.mark.parametrize("middleware", [CallFuseMiddleware, MCPMiddleware])
def test_uvicorn_exits(text: str, lifespan: str, middleware: type, tmp_path: Path) -> None:
    """With an error code; what is wrong stands in the log once, in a line without a traceback if it is added."""
    module = middleware.__module__.rpartition(".")[0].removesuffix(".asgi")
    (tmp_path / "wrong_app.py").write_text(text.format(module=module, name=middleware.__name__), encoding="utf-8")
    command = [sys.executable, "-m", "uvicorn", "wrong_app:app", "--port", "0", "--lifespan", lifespan]
    done = subprocess.run(command, cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert done.stderr.count(SAID) == 1
    assert ("Traceback" in done.stderr) == (text == WRAPPED)
    assert "Application startup complete" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"config": WRONG}, SAID), ({"store": "nowhere"}, "store = 'nowhere' (keyword): use memory://")],
    ids=["a setting", "the store"],
)
async def test_the_start_fails(arguments: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
    """The server is told by the message of the lifespan, and people by a line of the log."""
    sent: list[Any] = []
    app = Starlette()
    app.add_middleware(CallFuseMiddleware, **arguments)

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(ConfigError):
        await app({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.failed"}]
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert said in record.getMessage()


async def test_without_a_lifespan_requests_fail() -> None:
    """None passes unguarded."""
    app = Starlette()
    app.add_middleware(CallFuseMiddleware, config=WRONG)
    for _ in range(2):
        met = await drive(app, Request("/v1/chat/completions", b"{}"))
        assert (met.status, type(met.raised)) == (500, ConfigError)


def test_elsewhere_it_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    """Where an app is wrapped by hand, and logged for servers that drop it."""
    with pytest.raises(ConfigError, match="blok"):
        CallFuseMiddleware(Starlette(), WRONG)
    assert [record.getMessage().startswith(SAID) for record in caplog.records] == [True]
