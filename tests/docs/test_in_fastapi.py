"""Blocks of pages that mount callfuse in FastAPI, in the real one: elsewhere they run with a stand-in for it."""

import os
from pathlib import Path

import httpx
import pytest

from tests.docs.blocks import Block, every_block
from tests.docs.hosted import name_of
from tests.docs.servers import started
from tests.docs.world import TIMEOUT_S, World
from tests.hosts import client
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import free_port

NOWHERE = World("", "", "")
PACKAGES = ("fastapi==0.165.0", "httpx==0.28.1", "uvicorn==0.54.0")
BLOCKS = [one for one in every_block() if "from fastapi import" in one.text and not name_of(one)]


def test_there_are_some() -> None:
    """Those of the README and of the admin page among them."""
    assert {"README.md", "docs/admin.md"} <= {one.page for one in BLOCKS}


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_it_serves(block: Block, tmp_path: Path) -> None:
    """It starts; having no route of its own, it knows no path."""
    python = environment(*PACKAGES)
    (tmp_path / "app.py").write_text(block.text, encoding="utf-8")
    env = {**NOWHERE.environment(tmp_path), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    with started(f"uvicorn app:app --port {free_port()}", env, tmp_path) as server:
        answer = httpx.post(f"{server.url}{client.PATH}", json={}, timeout=TIMEOUT_S, trust_env=False)
    assert answer.json() == {"detail": "Not Found"}
