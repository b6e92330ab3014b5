"""Real servers as upstreams: each answers with `x-owner` of the request, below `/early/` before the body has come."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.serving import serve

NODE: Final = """
require('http').createServer((request, answer) => {
  const say = () => answer.end(request.headers['x-owner'] || '');
  if (request.url.startsWith('/early/')) { answer.statusCode = 401; return say(); }
  request.resume(); request.on('end', say);
}).listen(PORT, '127.0.0.1');
"""
NGINX: Final = """
daemon off; master_process off; pid FOLDER/pid; error_log FOLDER/error.log;
events {}
http {
  access_log off; client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p;
  fastcgi_temp_path FOLDER/f; uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
  server {
    listen 127.0.0.1:PORT;
    location / { return 200 $http_x_owner; }
    location /early/ { return 401 $http_x_owner; }
  }
}
"""


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The app for uvicorn."""
    early = scope["path"].startswith("/early/")
    while not early and (await receive()).get("more_body"):
        pass
    owner = dict(scope["headers"]).get(b"x-owner", b"")
    headers = [(b"content-length", str(len(owner)).encode())]
    await send({"type": "http.response.start", "status": 401 if early else 200, "headers": headers})
    await send({"type": "http.response.body", "body": owner})


@asynccontextmanager
async def uvicorn(_folder: Path) -> AsyncIterator[str]:
    """uvicorn over httptools."""
    async with serve(echo, interface="asgi3", lifespan="off", http="httptools") as origin:
        yield origin


@asynccontextmanager
async def program(name: str, port: int, *arguments: str) -> AsyncIterator[str]:
    """The origin of a server that is a program; the test is skipped where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    process = await asyncio.create_subprocess_exec(path, *arguments)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def node(_folder: Path) -> AbstractAsyncContextManager[str]:
    """node's own HTTP server."""
    port = free_port()
    return program("node", port, "-e", NODE.replace("PORT", str(port)))


def nginx(folder: Path) -> AbstractAsyncContextManager[str]:
    """nginx, which answers by itself, and reads the rest of the body afterwards."""
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.replace("FOLDER", str(folder)).replace("PORT", str(port)))
    return program("nginx", port, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log"))


UPSTREAMS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[str]]]] = {
    "uvicorn": uvicorn,
    "node": node,
    "nginx": nginx,
}
