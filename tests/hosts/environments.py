"""Makes environments with the packages of a host, kept between runs, and runs programs in them.

python = environment("mcp==2.3.0")
"""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
FLAG = "CALLFUSE_HOSTS"
IS_ASKED_FOR = os.environ.pop(FLAG, "") == "1"
"""Taken out, because callfuse refuses variables of its own prefix that it does not know."""
CACHE = os.environ.pop(f"{FLAG}_CACHE", "") or str(Path(tempfile.gettempdir()) / "callfuse-hosts")
RAY_LLM = os.environ.pop(f"{FLAG}_RAY_LLM", "")
"""A Python that can import `ray.serve.llm`: an environment with vLLM has several gigabytes, and is not made here."""
asked_for = pytest.mark.skipif(not IS_ASKED_FOR, reason=f"installs and runs other programs: set {FLAG}=1")
"""Marks tests that do."""


def environment(*requirements: str) -> Path:
    """The Python of an environment with these packages and what callfuse itself needs. Made once, and kept in the
    folder for temporary files, or in that which `CALLFUSE_HOSTS_CACHE` names."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        own = tomllib.load(file)["project"]["dependencies"]
    wanted = sorted({*requirements, *own})
    digest = blake2b("\n".join([sys.version, *wanted]).encode(), digest_size=8).hexdigest()
    folder = Path(CACHE) / digest
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run may want it at once
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
            subprocess.run(install, check=True, timeout=600)
            (folder / "complete").touch()
    return python


def run_json(python: Path, program: Path, *arguments: str, timeout_s: float = 60) -> Any:
    """Run a program there, with callfuse's sources, and read what its last line says as JSON."""
    env = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    command = [str(python), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
