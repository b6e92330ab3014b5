"""Measure the cost of callfuse in Ray Serve: requests per second, time to the first byte and CPU time of a replica.

    python -m benchmarks.ray [--rounds 15] [--requests 20] [--clients 4]

Two apps in the smallest Ray, one replica each, stream the same answer of 30 pieces to a conversation of 40 messages:
one bare, one with callfuse in its ingress. Requests go through Serve's HTTP proxy. The rounds are interleaved; the
figures are medians of the rounds. Everything is on loopback and ends by itself. Needs an environment with `ray[serve]`
and callfuse's own dependencies, and exits with a message if Ray is missing.
"""

import argparse
import http.client
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from statistics import median
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.driving import ASGIApp
from benchmarks.envoy import free_port
from benchmarks.proxy import NUMBER, ROOT, cpu_s, request_body, text_events
from callfuse import CallFuseMiddleware

PATH: Final = "/v1/chat/completions"
APPS: Final = ("bare", "guarded")
PIECES: Final = 30
MESSAGES: Final = 40
TOOLS: Final = 10
PATIENCE_S: Final = 120
OBJECT_STORE_BYTES: Final = 80_000_000


class Figures(NamedTuple):
    """The figures of one app in one round."""

    per_s: float
    first_byte_ms: float
    cpu_ms: float


def bare() -> ASGIApp:
    """Yield the app without callfuse. A header names its process."""
    pieces = text_events(PIECES - 1)

    async def streamed() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def answer(request: Request) -> Response:
        await request.body()
        return StreamingResponse(streamed(), headers={"x-pid": str(os.getpid())}, media_type="text/event-stream")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def guarded() -> ASGIApp:
    """Return the same app with callfuse."""
    return CallFuseMiddleware(bare(), {})


def ask(port: int, name: str, bodies: Sequence[bytes]) -> tuple[list[float], int]:
    """Send each of the bodies to one app. Returns the seconds to each first byte, and the id of its process."""
    firsts, pid = [], 0
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        for body in bodies:
            begin = time.perf_counter()
            connection.request("POST", f"/{name}{PATH}", body, {"content-type": "application/json"})
            with connection.getresponse() as response:
                response.read(1)
                firsts.append(time.perf_counter() - begin)
                if b"[DONE]" not in response.read()[-64:]:
                    raise RuntimeError(f"{name} answers {response.status}, or not to the end")
                pid = int(response.headers["x-pid"])
    return firsts, pid


def measure(port: int, name: str, bodies: list[list[bytes]]) -> Figures:
    """Return the figures of one round of one app: a client for each list of bodies, all concurrently."""
    _, pid = ask(port, name, bodies[0][:1])
    cpu, begin = cpu_s(pid), time.perf_counter()
    with ThreadPoolExecutor(len(bodies)) as clients:
        found = list(clients.map(lambda own: ask(port, name, own)[0], bodies))
    firsts = [one for own in found for one in own]
    elapsed_s = time.perf_counter() - begin
    return Figures(len(firsts) / elapsed_s, median(firsts) * 1e3, (cpu_s(pid) - cpu) / len(firsts) * 1e3)


def start(port: int, folder: str) -> tuple[Any, Any]:
    """Start Ray, and Serve without an app. Returns both modules."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0", HOME=folder, PYTHONPATH=paths)
    ray, serve = import_module("ray"), import_module("ray.serve")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        _temp_dir=folder,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    return ray, serve


def deploy(serve: Any) -> None:
    """Run both apps."""
    for name, app in zip(APPS, (bare, guarded), strict=True):
        deployment = serve.deployment(serve.ingress(app)()).options(ray_actor_options={"num_cpus": 0.1})
        serve.run(deployment.bind(), name=name, route_prefix=f"/{name}")


def parsed(purpose: str, arguments: list[str] | None, requests: int) -> argparse.Namespace:
    """Return the options of a program that measures two apps in Ray."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=requests, help="of each client in each round")
    parser.add_argument("--clients", type=int, default=4)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, deploy: Callable[[Any], None]) -> None:
    """Measure the apps that `deploy` runs, and print the medians."""
    conversation, numbers, port = request_body(MESSAGES, TOOLS), count(10_000_000), free_port()
    found: dict[str, list[Figures]] = {name: [] for name in APPS}
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a socket's path has at most 107 characters
        ray, serve = start(port, folder)
        try:
            deploy(serve)
            for _ in range(options.rounds):
                for name, figures in found.items():
                    bodies = [
                        [conversation.replace(NUMBER, b"%d" % next(numbers)) for _ in range(options.requests)]
                        for _ in range(options.clients)
                    ]
                    figures.append(measure(port, name, bodies))
        finally:
            ray.shutdown()
    print(f"{'':<10}{'requests/s':>12}{'first byte, ms':>16}{'CPU ms of the replica':>23}")
    for name, figures in found.items():
        per_s, first_byte_ms, cpu_ms = (median(one) for one in zip(*figures, strict=True))
        print(f"{name:<10}{per_s:>12.0f}{first_byte_ms:>16.1f}{cpu_ms:>23.2f}")


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = parsed(__doc__.partition("\n")[0], arguments, requests=20)
    if find_spec("ray") is None:
        print("skipped: Ray is not installed here (pip install 'ray[serve]')")
        return
    run(options, deploy)


if __name__ == "__main__":
    main()
