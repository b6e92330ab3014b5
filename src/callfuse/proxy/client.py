"""Send requests to an upstream: one connection pool, timeouts by phase, and at most one retry.

`ask` sends a request and returns the response before its body has arrived. It adds no headers, decodes no bodies,
follows no redirects, keeps no cookies, and does not read `.netrc`.
"""

import asyncio
import logging
import time
from contextvars import ContextVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from yarl import URL

from callfuse.config.serve import FAILED_FOR_S, ServeSettings
from callfuse.proxy.environment import proxy_for, tls_context
from callfuse.proxy.target import Upstream
from callfuse.proxy.upload import Upload, is_replayable

_log = logging.getLogger("callfuse.proxy")

READ_BUFFER_BYTES = 64 * 1024  # aiohttp stops reading at twice this
MAX_HEADER_BYTES = 64 * 1024  # of one header; aiohttp's default is 8 KiB, node allows 16 KiB for all
# Long enough for the pauses between an agent's turns, shorter than the idle timeout of load balancers in front of
# vendors (60 s and more). Servers with less (uvicorn and node: 5 s) close first: aiohttp sees that, or `ask` retries.
KEEPALIVE_S = 15.0
# A connection closed by the upstream fails within a round trip. One that fails later may have served the request.
STALE_WITHIN_S = 2.0

_connected_anew: ContextVar[bool] = ContextVar("callfuse_connected_anew", default=False)


class _Pool(aiohttp.TCPConnector):
    """Sets `_connected_anew` if the request of this context opens a connection instead of reusing one."""

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> ResponseHandler:
        _connected_anew.set(True)
        return await super()._create_connection(req, traces, timeout)


class UpstreamClient:
    """Sends requests to one upstream. The first request opens the session at the latest, in one event loop."""

    def __init__(self, settings: ServeSettings, upstream: Upstream) -> None:
        self._proxy = proxy_for(upstream)
        self._tls = tls_context() if upstream.secure else None
        self._max_connections = settings.max_connections
        self._idle_timeout_s = settings.idle_timeout_s
        # aiohttp's `sock_read` is the longest wait for any next bytes; `_begin_body` changes it.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout_s, sock_read=settings.first_byte_timeout_s
        )
        self._added: list[tuple[str, str]] = []
        self._tunnel_headers: dict[str, str] | None = None
        if self._proxy is not None and self._proxy.authorization is not None:
            credentials = ("Proxy-Authorization", self._proxy.authorization)
            if upstream.secure:  # the proxy sees only the CONNECT
                self._tunnel_headers = dict([credentials])
            else:
                self._added.append(credentials)
        self._session: aiohttp.ClientSession | None = None
        self._failed_at: float | None = None
        self._was_tried = False

    @property
    def reached(self) -> bool | None:
        """Whether the upstream answered the last request, with any status. None if it was not tried yet, or if it
        failed longer ago than `FAILED_FOR_S`."""
        if self._failed_at is None:
            return True if self._was_tried else None
        return False if time.monotonic() - self._failed_at < FAILED_FOR_S else None

    def note_try(self, *, reached: bool) -> None:
        """Note whether the upstream has answered a request."""
        self._was_tried = True
        self._failed_at = None if reached else time.monotonic()

    @property
    def proxy(self) -> str | None:
        """The URL of the HTTP proxy in between, without credentials; None if there is none."""
        return str(self._proxy.url) if self._proxy is not None else None

    def open(self) -> aiohttp.ClientSession:
        """Return the session, opening it in the running event loop if needed."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Pool(
                    limit=self._max_connections,
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=self._tls if self._tls is not None else True,
                ),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                read_bufsize=READ_BUFFER_BYTES,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )
        return self._session

    async def close(self) -> None:
        """Close every connection. A later request opens a new session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(
        self, method: str, url: URL, headers: list[tuple[str, str]], body: bytes | Upload | None
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the headers of the answer. Raises one of `FAILURES` (see `proxy/failures.py`).

        A request is retried once, and only if the upstream was just closing a pooled connection: the connection was
        used before, no byte came back, it failed at once, and the whole body can be sent again. In all other cases the
        vendor may have begun to generate, and the client would pay twice.
        """
        loop = asyncio.get_running_loop()
        _connected_anew.set(False)
        began_s = loop.time()
        try:
            return await self._send(method, url, headers, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            at_once = loop.time() - began_s < STALE_WITHIN_S
            if _connected_anew.get() or not at_once or not is_replayable(body) or _has_begun(error):
                raise
        _log.debug("the upstream had closed a pooled connection; sending the request again")
        return await self._send(method, url, headers, body)

    async def _send(
        self, method: str, url: URL, headers: list[tuple[str, str]], body: bytes | Upload | None
    ) -> aiohttp.ClientResponse:
        response = await self.open().request(
            method,
            url,
            headers=headers + self._added if self._added else headers,
            data=body,
            allow_redirects=False,
            proxy=self._proxy.url if self._proxy is not None else None,
            proxy_headers=self._tunnel_headers,
        )
        self._begin_body(response)
        return response

    def _begin_body(self, response: aiohttp.ClientResponse) -> None:
        """Switch from the first-byte timeout to the idle timeout, after the headers have arrived."""
        connection = response.connection
        if connection is None or connection.protocol is None:
            return  # the whole answer has arrived
        connection.protocol.read_timeout = self._idle_timeout_s
        # With more than this in its buffer, aiohttp pauses reading, and must not time out because of our own delay.
        if response.content.total_bytes <= 2 * READ_BUFFER_BYTES:
            connection.protocol.start_timeout()


def _has_begun(error: aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) -> bool:
    """Whether part of the answer's headers arrived before the error."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
