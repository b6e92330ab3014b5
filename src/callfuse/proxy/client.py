"""The upstream client: one pool of connections, timeouts by phase, and at most one second try.

In: a request. Out: the upstream's response, its body still to come. Nothing is added to a request; nothing is decoded,
followed, remembered or read from a `.netrc`.
"""

import asyncio
import logging
from contextvars import ContextVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from yarl import URL

from callfuse.proxy.environment import proxy_for, tls_context
from callfuse.proxy.settings import ServeSettings
from callfuse.proxy.target import Upstream
from callfuse.proxy.upload import Upload, replayable

_log = logging.getLogger("callfuse.proxy")

READ_BUFFER_BYTES = 64 * 1024  # aiohttp stops reading at twice this
MAX_HEADER_BYTES = 64 * 1024
# Long enough for the pauses between an agent's turns, shorter than what load balancers in front of vendors grant (60 s
# and more). Servers that grant less (uvicorn and node: 5 s) close first, which is seen, or meets the second try below.
KEEPALIVE_S = 15.0
# A connection that the upstream had given up answers within a round trip; what breaks later had been at work.
STALE_WITHIN_S = 2.0

_connected_anew: ContextVar[bool] = ContextVar("callfuse_connected_anew", default=False)


class _Pool(aiohttp.TCPConnector):
    """Says whether the request that runs in this context got a connection of its own or one from the pool."""

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> ResponseHandler:
        _connected_anew.set(True)
        return await super()._create_connection(req, traces, timeout)


class UpstreamClient:
    """Asks one upstream. The session is opened by the first request at the latest and lives in one event loop."""

    def __init__(self, settings: ServeSettings, upstream: Upstream) -> None:
        self._proxy = proxy_for(upstream)
        self._tls = tls_context() if upstream.secure else None
        self._max_connections = settings.max_connections
        self._idle_timeout_s = settings.idle_timeout_s
        # aiohttp's `sock_read` is the longest wait for the next bytes, whichever they are; `_begin_body` changes it.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout_s, sock_read=settings.first_byte_timeout_s
        )
        self._added: list[tuple[str, str]] = []
        self._tunnel_headers: dict[str, str] | None = None
        if self._proxy is not None and self._proxy.authorization is not None:
            credentials = ("Proxy-Authorization", self._proxy.authorization)
            if upstream.secure:  # the proxy sees the CONNECT only
                self._tunnel_headers = dict([credentials])
            else:
                self._added.append(credentials)
        self._session: aiohttp.ClientSession | None = None

    @property
    def proxy(self) -> str | None:
        """The proxy in between, without credentials."""
        return str(self._proxy.url) if self._proxy is not None else None

    def open(self) -> aiohttp.ClientSession:
        """The session, in the running event loop."""
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
        """Send a request and wait for the answer's headers.

        A request is sent a second time only if it met a pooled connection that the upstream was just closing: the
        connection was used before, not a byte came back, it broke at once, and the body is here to be sent again.
        Else the vendor may have begun to generate, and a proxy must not ask for that twice.
        """
        loop = asyncio.get_running_loop()
        _connected_anew.set(False)
        began_s = loop.time()
        try:
            return await self._send(method, url, headers, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            at_once = loop.time() - began_s < STALE_WITHIN_S
            if _connected_anew.get() or not at_once or not replayable(body) or _begun(error):
                raise
        _log.debug("a pooled connection had been closed by the upstream; asking once more")
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
        """The headers are here: from now on the idle timeout counts."""
        connection = response.connection
        if connection is None or connection.protocol is None:
            return  # the whole answer is here
        connection.protocol.read_timeout = self._idle_timeout_s
        # Where more than this is waiting, aiohttp has stopped reading and its clock with it: the pause is ours.
        if response.content.total_bytes <= 2 * READ_BUFFER_BYTES:
            connection.protocol.start_timeout()


def _begun(error: aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) -> bool:
    """Whether a part of the answer's headers had come."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
