"""Provide the app behind the middleware: the vendor behind Envoy, and for each further answer the vendor itself.

Envoy asks the vendor once for each request. To ask the model again within one answer, callfuse sends the request to the
vendor by itself, with the client's credentials.
"""

from typing import Final

from callfuse.asgi.types import Receive, Scope, Send
from callfuse.config.serve import ServeSettings
from callfuse.envoy.exchange import STATE, EnvoyExchange
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.refusing import ErrorBody, Refusing

REFUSED: Final = 400
NO_UPSTREAM: Final = "callfuse has no upstream by which to ask the model again"
ENVOYS_OWN: Final = b"x-envoy-"
"""The prefix of headers that Envoy adds to a request for the next hop, such as its timeout."""


class EnvoyApp(Refusing):
    """An ASGI 3 app for the middleware of an external processor. `settings` name the upstreams, if there are any;
    `error_body` formats errors in the dialect of a path. Raises ConfigError for wrong settings."""

    def __init__(self, settings: ServeSettings, error_body: ErrorBody) -> None:
        super().__init__(settings, error_body)
        self._proxy: ReverseProxy | None = None
        self.configure(settings)

    def configure(self, settings: ServeSettings) -> None:
        """Use these settings for requests that are sent from now on. Raises ConfigError as the constructor does."""
        super().configure(settings)
        if not can_ask(settings):
            self._proxy = None
        elif self._proxy is None:
            self._proxy = ReverseProxy(settings, self._error_body)
        else:
            self._proxy.configure(settings)

    @property
    def reachable(self) -> bool | None:
        """Whether any upstream was reached at its last try; None if it is not known."""
        return None if self._proxy is None else self._proxy.reachable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a lifespan, or one call of an exchange."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        exchange: EnvoyExchange = scope["state"][STATE]
        if exchange.is_first_call():
            await exchange.vendor(scope, receive, send)
        elif self._proxy is not None:
            headers = [(name, value) for name, value in scope["headers"] if not name.startswith(ENVOYS_OWN)]
            await self._proxy({**scope, "headers": headers}, receive, send)
        else:
            await self._refuse(scope, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._proxy is not None:
            await self._proxy.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _refuse(self, scope: Scope, send: Send) -> None:
        body, content_type = self._error_body(scope["path"], REFUSED, NO_UPSTREAM)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": REFUSED, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def can_ask(settings: ServeSettings) -> bool:
    """Whether callfuse itself can ask any vendor."""
    return settings.upstream is not None or bool(settings.routes)
