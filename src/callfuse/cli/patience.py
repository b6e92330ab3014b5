"""Limit the time for the head of a request; uvicorn limits only the pause after an answer.

Without a limit, a client that sends half a head, or nothing at all, would keep its connection forever.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from callfuse.cli.certificate import Certificate
from callfuse.config.serve import ServeSettings

_make_inner: Callable[..., asyncio.Protocol]
try:
    from callfuse.cli.whole_requests import WholeRequests

    _make_inner = WholeRequests
except ImportError:  # httptools is not installed, for example on Windows
    from uvicorn.protocols.http.h11_impl import H11Protocol

    _make_inner = H11Protocol

LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nx-should-retry: false\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(asyncio.Protocol):
    """uvicorn's HTTP protocol behind a timer: `head_timeout_s` seconds from the connection, or from the first byte of a
    later head, to the end of that head. Then the connection is closed, with a 408 if part of a head had arrived."""

    head_timeout_s = 60.0

    def __init__(self, **options: Any) -> None:
        self._inner = _make_inner(**options)
        self._head_timeout_s: float = getattr(options["config"], "head_timeout_s", self.head_timeout_s)
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False

    @property
    def _is_serving(self) -> bool:
        """Whether a request is being answered."""
        cycle = getattr(self._inner, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection, and the time within which its first request must come."""
        self._transport = transport
        self._inner.connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop()
        self._inner.connection_lost(exc)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and check whether a head has ended or begun with them."""
        self._inner.data_received(data)
        if self._is_serving:
            self._stop()
            return
        self._has_begun = True
        if self._timer is None:
            self._start()

    def eof_received(self) -> bool | None:
        """Handle the end of the client's data."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Handle a client that reads too slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Handle a client that reads again."""
        self._inner.resume_writing()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._head_timeout_s, self._end)

    def _stop(self) -> None:
        self._has_begun = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        """Close the connection after the time limit, unless a request is being answered."""
        self._timer = None
        transport = self._transport
        if transport is None or self._is_serving:
            return
        if self._has_begun and isinstance(transport, asyncio.WriteTransport):
            transport.write(LATE)
        transport.close()


class PatientConfig(uvicorn.Config):
    """uvicorn's configuration with `PatientProtocol`, and with HTTPS if the settings name a certificate. It is pickled
    for workers, so its arguments must be plain values."""

    def __init__(self, app: Any, settings: ServeSettings, **options: Any) -> None:
        super().__init__(app, http=PatientProtocol, **options)
        self.head_timeout_s = settings.read_timeout_s
        self._settings = settings

    def load(self) -> None:
        """Build the server's objects, in its own process. Raises ConfigError if the certificate is wrong."""
        super().load()
        if (certificate := self._settings.tls_certificate) is not None:
            self.ssl = Certificate(certificate, self._settings.tls_key).context
