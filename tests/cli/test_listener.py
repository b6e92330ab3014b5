"""The socket that `callfuse serve` listens on."""

import socket

from callfuse.cli.serve import open_listener
from callfuse.config.serve import ServeSettings


def test_no_chunk_waits_for_an_acknowledgement() -> None:
    """Accepted connections inherit TCP_NODELAY, whatever event loop serves them."""
    settings = ServeSettings(upstream="http://127.0.0.1:1", port=0)
    with open_listener(settings) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
