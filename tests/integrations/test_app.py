"""`callfuse.integrations.litellm:app` without LiteLLM: with a stand-in for its proxy, and where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.sources import PROJECT

PROGRAM = "from callfuse.integrations.litellm import app; print(type(app).__name__, app.app.name)"
PROXY = 'class Proxy:\n    name = "the proxy"\n\n\napp = Proxy()\n'


def run(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Import the app where `folder` comes before installed packages."""
    path = f"{folder}:{PROJECT / 'src'}"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files with these texts."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.slow
def test_it_is_the_proxy_behind_the_guard(tmp_path: Path) -> None:
    """The app that a server imports is the middleware, with LiteLLM's own app inside."""
    write(
        tmp_path, {"litellm/__init__.py": "", "litellm/proxy/__init__.py": "", "litellm/proxy/proxy_server.py": PROXY}
    )
    done = run(tmp_path)
    assert done.stdout == "CallFuseMiddleware the proxy\n", done.stderr


@pytest.mark.slow
def test_without_litellm_it_says_what_to_install(tmp_path: Path) -> None:
    """Also where LiteLLM is there without what its proxy needs."""
    write(tmp_path, {"litellm/__init__.py": "", "litellm/proxy/__init__.py": "import apscheduler_that_is_missing"})
    error = run(tmp_path).stderr.splitlines()[-1]
    assert error.startswith("ImportError: ")
    assert "apscheduler_that_is_missing" in error
    assert "pip install 'litellm[proxy]'" in error
