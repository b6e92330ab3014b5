"""nginx in front of callfuse: streams pass in pieces by its configuration, and by the header of `callfuse serve`."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from anyio import to_thread

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.hosts import client
from tests.hosts.environments import CACHE, asked_for
from tests.hosts.mounting import APPS, free_port
from tests.hosts.pages import page
from tests.support.asgi import App
from tests.support.serving import serve

pytestmark = [asked_for, pytest.mark.slow, pytest.mark.timeout(300)]
OFF = ("    proxy_buffering off;\n", "    proxy_http_version 1.1;\n")
"""Lines that pass pieces on."""
HTTP_1_0 = "h11"
"""What of uvicorn answers HTTP/1.0, this nginx's default, without chunks. Of chunks nginx passes each on at once."""
STOP_S = 10
CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port};
{location}
    }}
}}
"""


@pytest.fixture(scope="module")
def nginx() -> str:
    """The program: the machine's own, or that of Debian's package, unpacked beside the environments."""
    folder = Path(CACHE) / "nginx"
    program = shutil.which("nginx") or shutil.which(folder / "usr/sbin/nginx")
    if program is None and shutil.which("apt-get"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["apt-get", "download", "nginx"], cwd=place, capture_output=True, timeout=120, check=False)
            for package in Path(place).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(folder)], timeout=60, check=True)
        program = shutil.which(folder / "usr/sbin/nginx")
    if program is None:
        pytest.skip("nginx is not installed, and Debian's package is not to be had")
    return program


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> App:
    """The scripted models as an ASGI app."""
    monkeypatch.syspath_prepend(str(APPS / "common"))
    app: App = import_module("bare").app
    return app


@contextmanager
def _in_front(nginx: str, url: str, location: str) -> Iterator[str]:
    """nginx with the location of the page before that server."""
    location = location.replace("http://127.0.0.1:8100", url)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nginx.conf"
        path.write_text(CONFIGURATION.format(folder=folder, port=port, location=location), encoding="utf-8")
        command = [nginx, "-c", str(path), "-p", folder, "-e", f"{folder}/error.log"]
        subprocess.run([*command, "-t"], capture_output=True, timeout=60, check=True)
        process = subprocess.Popen(command)
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(STOP_S)


def _wait_for(port: int) -> None:
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("nginx does not listen")


LOCATION = page("nginx").files["location.conf"]
NAIVE = "".join(line for line in LOCATION.splitlines(keepends=True) if line not in OFF)


async def test_the_page_s_location(nginx: str, models: App) -> None:
    """Before an app with the middleware."""
    async with serve(CallFuseMiddleware(models), http=HTTP_1_0) as url:
        with _in_front(nginx, url, LOCATION) as front:
            await to_thread.run_sync(client.check, front)


async def test_the_header_of_callfuse_serve(nginx: str, models: App) -> None:
    """Does it without those lines."""
    async with serve(models) as vendor:
        proxy = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=vendor)))
        async with serve(proxy, http=HTTP_1_0) as url:
            with _in_front(nginx, url, NAIVE) as front:
                await to_thread.run_sync(client.check, front)


async def test_without_either_streams_are_held_back(nginx: str, models: App) -> None:
    """So that the two above show something."""
    async with serve(CallFuseMiddleware(models), http=HTTP_1_0) as url:
        with _in_front(nginx, url, NAIVE) as front:
            assert await to_thread.run_sync(client.is_buffered, front, client.PATH, 1)
