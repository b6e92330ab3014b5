"""Each host of `docs/mount` as its page says, its real server and a socket: loops are withheld, streams go on."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hosts import client
from tests.hosts.environments import asked_for, environment, run_json
from tests.hosts.mounting import mounted
from tests.hosts.pages import page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
UVICORN = "uvicorn==0.54.0"


@dataclass(frozen=True)
class Mount:
    """A page, and what its environment needs.

    `streams`: whether the host can. `ends`: whether it ends the work for a client that leaves, as it does without
    callfuse. `start_s`: seconds until it listens.
    """

    name: str
    requirements: tuple[str, ...]
    streams: bool = True
    ends: bool = True
    start_s: float = 60


SERVERS = (
    UVICORN,
    "uvicorn-worker==0.4.0",
    "gunicorn==27.0.1",
    "hypercorn[trio]==0.18.0",
    "granian==2.8.7",
    "h2==4.4.1",
)
MOUNTS = [
    Mount("fastapi", ("fastapi==0.165.0", UVICORN)),
    Mount("starlette", ("starlette==1.10.0", UVICORN)),
    Mount("litestar", ("litestar==2.25.0", UVICORN)),
    Mount("quart", ("quart==0.22.0", UVICORN)),
    Mount("django", ("django==5.2.19", UVICORN)),
    Mount("falcon", ("falcon==4.4.0", UVICORN), ends=False),
    Mount("blacksheep", ("blacksheep==2.6.4", UVICORN), ends=False),
    Mount("sanic", ("sanic==25.12.1", UVICORN), ends=False),
    Mount("vllm", ("fastapi==0.165.0", UVICORN)),
    Mount("llama-cpp-python", ("fastapi==0.165.0", "sse-starlette==3.5.0", UVICORN)),
    Mount("mangum", ("mangum==0.22.0", "starlette==1.10.0"), streams=False, ends=False),
    Mount("ray", ("ray[serve]==2.60.0", "redis==8.1.0"), start_s=240),
    Mount("bentoml", ("bentoml==1.4.39", "fastapi==0.165.0"), start_s=120),
    *(Mount(name, SERVERS) for name in ("uvicorn", "hypercorn", "granian", "gunicorn")),
]
WITH_STORE = "CALLFUSE_STORE="
"""In commands for several processes, which `test_ray` runs."""
CASES = [(mount, one) for mount in MOUNTS for one in page(mount.name).commands if WITH_STORE not in one]


@asked_for
@pytest.mark.parametrize(("mount", "command"), CASES, ids=[f"{mount.name}: {command}" for mount, command in CASES])
def test_a_loop_is_caught(mount: Mount, command: str, tmp_path: Path) -> None:
    """A model that listens changes course, one that does not is blocked, a stream's beginning comes before its end, and
    a client that leaves ends the model's work."""
    with mounted(mount.name, command, environment(*mount.requirements), tmp_path, start_s=mount.start_s) as url:
        client.check(url, streams=mount.streams, ends=mount.ends)


@asked_for
@pytest.mark.parametrize("command", [one for one in page("hypercorn").commands if "asgi:" not in one])
def test_http_2(command: str, tmp_path: Path) -> None:
    """The same over HTTP/2."""
    asking = environment("httpx[http2]==0.28.1")
    with mounted("hypercorn", command, environment(*SERVERS), tmp_path) as url:
        run_json(asking, Path(str(client.__file__)), url, "--http2", timeout_s=120)
