"""Serve an ASGI app on a free loopback port during a `with` block. Needs `callfuse[serve]`.

The server runs in its own thread and event loop, so sync and async clients can use it. The port is bound before the
server starts, which avoids a race.
"""

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from callfuse.errors import install_hint

STOP_TIMEOUT_S = 10
POLL_S = 0.01


@contextmanager
def served(app: Callable[[Any, Any, Any], Awaitable[None]]) -> Iterator[str]:
    """Serve `app`, and yield its base URL, for example `http://127.0.0.1:49152`. Raises ImportError without uvicorn,
    and RuntimeError if the app refuses to start."""
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError(f"serving needs uvicorn: {install_hint('serve')}") from error

    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none", server_header=False)
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it, small chunks wait for an ACK

        def run() -> None:
            with suppress(SystemExit):  # uvicorn raises it if the app refuses to start
                server.run([listener])

        thread = threading.Thread(target=run, name="callfuse-testing", daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("the app refused to start")
                time.sleep(POLL_S)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(STOP_TIMEOUT_S)
