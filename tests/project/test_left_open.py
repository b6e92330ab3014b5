"""A test that leaves a connection open fails by that itself, not one of those that follow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.sources import PROJECT

SUITE = """
import socket


class Client:
    def __init__(self):
        self.itself = self  # not freed before it is collected
        self.connection = socket.socket()


def test_before():
    pass


def test_guilty():
    Client()


def test_closing():
    Client().connection.close()


def test_after():
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system does not say what is open")
def test_the_guilty_test_is_named(tmp_path: Path) -> None:
    """Though its connection is only freed by a collection, and another test runs before the next of these."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    settings = ("-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "tests.conftest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *settings, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    named = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("ERROR", "FAILED"))]
    assert named == ["ERROR test_suite.py::test_guilty"], done.stdout + done.stderr
