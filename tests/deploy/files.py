"""What the tests of `deploy/` share: its YAML files, what callfuse makes of variables and files, and Debian's packages.

In: names of files below the project. Out: their values; settings; programs of packages that are unpacked beside the
environments of `tests/hosts`.
"""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.config import Config, resolve
from callfuse.config.environment import ADMIN_TOKEN, CONFIG_FILE, GUARDRAIL_KEY, IN_FILES, SYNONYMS, variables
from callfuse.observe.webhook import DRAIN_S
from tests.hosts.environments import CACHE
from tests.project.sources import PROJECT

DEPLOY = PROJECT / "deploy"
NO_SETTINGS = {CONFIG_FILE, ADMIN_TOKEN, GUARDRAIL_KEY}


def loaded(name: str) -> Any:
    """The values of a YAML file below `deploy/`."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def unknown(names: Mapping[str, Any]) -> set[str]:
    """The variables among these that look like callfuse's and are none."""
    ours = {name for name in names if name.startswith(("CALLFUSE_", "TOOL_LOOP_"))}
    return ours - set(variables()) - set(SYNONYMS) - set(IN_FILES) - NO_SETTINGS


def settings(env: Mapping[str, str], text: str = "") -> Config:
    """What callfuse is set to by these variables and the text of a file. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "callfuse.yaml"
        path.write_text(text, encoding="utf-8")
        kept = {name: value for name, value in env.items() if name not in NO_SETTINGS}
        return resolve(path, env=kept).config


def least_grace_s(config: Config, before_s: float = 0) -> float:
    """How long whoever stops `callfuse serve` has to wait before killing it: until its streams have ended and what
    waits for the webhook is sent; `before_s` is spent before the signal."""
    return before_s + config.serve.drain_s + config.serve.shutdown_timeout_s + DRAIN_S


@cache
def debian_program(package: str, path: str) -> str:
    """A program: the machine's own, or that of Debian's package; the test is skipped where there is neither."""
    folder = Path(CACHE) / package
    name = Path(path).name
    program = shutil.which(name) or shutil.which(folder / path)
    if program is None and shutil.which("apt-get"):
        folder.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run may want it at once
            _unpack(package, folder)
        program = shutil.which(folder / path)
    if program is None:
        pytest.skip(f"{name} is not installed, and Debian's package is not to be had")
    return program


def _unpack(package: str, folder: Path) -> None:
    if any(folder.iterdir()):
        return
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["apt-get", "download", package], cwd=place, capture_output=True, timeout=120, check=False)
        for file in Path(place).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(file), str(folder)], timeout=60, check=True)
