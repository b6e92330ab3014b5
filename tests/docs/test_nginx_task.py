"""`docs/tasks/nginx.md`: a real nginx runs its server, with TLS, in front of `callfuse serve` with its settings."""

import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from callfuse.testing import Answer, ScriptedVendor, VendorRequest, looping_model, served
from tests.cli.test_serve import serving
from tests.docs.started import file_of
from tests.hosts.mounting import free_port

PAGE = "docs/tasks/nginx.md"
NAME = "guard.example"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
OPENSSL = shutil.which("openssl")
STOP_S = 10
SNI = {"sni_hostname": NAME}
MAIN = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/guard.conf;
}}
"""
CERTIFICATE = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
CERTIFICATE += ["-addext", f"subjectAltName=DNS:{NAME}"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed"),
]


@contextmanager
def in_front(guard: int) -> "Iterator[Named]":
    """nginx with the page's server before a guard on this port; yields a client that knows the name."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = ["-keyout", f"{folder}/{NAME}.key", "-out", f"{folder}/{NAME}.pem"]
        subprocess.run([str(OPENSSL), *CERTIFICATE, *pair], capture_output=True, timeout=60, check=True)
        server = file_of(PAGE, "guard.conf").text
        for shown, put in {
            "listen 443": f"listen 127.0.0.1:{port}",
            "/etc/ssl": str(folder),
            "127.0.0.1:8100": f"127.0.0.1:{guard}",
        }.items():
            assert shown in server
            server = server.replace(shown, put)
        (folder / "guard.conf").write_text(server, encoding="utf-8")
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder), encoding="utf-8")
        command = [str(NGINX), "-c", f"{folder}/nginx.conf", "-p", str(folder), "-e", f"{folder}/error.log"]
        subprocess.run([*command, "-t"], capture_output=True, timeout=60, check=True)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        trusted = ssl.create_default_context(cafile=f"{folder}/{NAME}.pem")
        try:
            with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted, trust_env=False) as client:
                yield Named(client, port)
        finally:
            process.terminate()
            process.wait(STOP_S)


class Named:
    """A client that asks for the page's name, wherever that is."""

    def __init__(self, client: httpx.Client, port: int) -> None:
        self._client = client
        self._wait(port)

    def post(self, path: str, body: object, host: str = NAME) -> httpx.Response:
        """Send a request for a name."""
        return self._client.post(path, json=body, headers={"host": host}, extensions=SNI)

    def get(self, path: str) -> httpx.Response:
        """Ask for a page."""
        return self._client.get(path, headers={"host": NAME}, extensions=SNI)

    def _wait(self, port: int) -> None:
        end = time.monotonic() + STOP_S
        while not self._listens():
            assert time.monotonic() < end, f"nginx does not listen on {port}"
            time.sleep(0.05)

    def _listens(self) -> bool:
        try:
            self.get("/_callfuse/health")
        except httpx.ConnectError:
            return False
        return True


def settings(folder: Path, vendor: str) -> Path:
    """The page's file, with the address of this vendor."""
    file = folder / "callfuse.yaml"
    content = yaml.safe_load(file_of(PAGE, "callfuse.yaml").text)
    content["serve"]["upstream"] = vendor
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def test_the_page_s_server(tmp_path: Path) -> None:
    """A loop is caught through it; its name is known, another is refused; the page is not shown; long bodies pass."""

    def script(request: VendorRequest) -> Answer:
        return looping_model("search", stubborn=True)(request) if request.body.get("tools") else Answer("Hello.")

    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    messages: list[object] = [{"role": "user", "content": "Find it."}]
    with (
        served(ScriptedVendor(script)) as vendor,
        serving("--config", str(settings(tmp_path, vendor))) as guard,
        in_front(guard.port) as client,
    ):
        for _ in range(8):
            body = {"model": "m", "messages": messages, "tools": tools}
            said = client.post("/v1/chat/completions", body).json()["choices"][0]["message"]
            messages.append(said)
            if not said.get("tool_calls"):
                break
            messages += [{"role": "tool", "tool_call_id": one["id"], "content": "none"} for one in said["tool_calls"]]
        assert said["content"].startswith("[callfuse]")
        assert len(messages) == 6
        assert client.get("/_callfuse/").status_code == 404
        long = {"model": "m", "messages": [{"role": "user", "content": "x" * 2_000_000}]}
        assert client.post("/v1/chat/completions", long).status_code == 200
    assert re.search(r"proxy_buffering off;", file_of(PAGE, "guard.conf").text)


def test_another_name_is_refused(tmp_path: Path) -> None:
    """So the setting on the page is needed."""
    with served(ScriptedVendor([Answer("Hello."), Answer("Hello.")])) as vendor:
        file = settings(tmp_path, vendor)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
        with serving("--config", str(file)) as guard, in_front(guard.port) as client:
            assert client.post("/v1/chat/completions", body).status_code == 200
            assert client.post("/v1/chat/completions", body, host="other.example").status_code == 421
