"""Refuse requests in front of the proxy, before anything reads or answers them.

`CrossSiteGate` is in front of the guard, which answers commands by itself. `FrontGate` is also in front of the admin
page.
"""

from collections.abc import Awaitable, Callable

from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.refusing import Refusing

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class CrossSiteGate:
    """Wraps the app in front of a proxy. Requests that may not use the proxy's credentials do not reach the app,
    because it answers some by itself: commands in the chat change the settings of sessions."""

    def __init__(self, app: App, proxy: ReverseProxy) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and self._proxy.is_foreign(scope):
            return self._proxy.refuse_foreign(scope, send)
        return self._app(scope, receive, send)


class FrontGate:
    """Wraps everything that is served over HTTP. Requests with a `Host` that is not a name of the proxy, or with an
    unknown transfer coding of the body, do not reach the wrapped app."""

    def __init__(self, app: App, proxy: Refusing) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and (failure := self._proxy.refusal_of(scope)) is not None:
            return self._proxy.refuse(scope, send, failure)
        return self._app(scope, receive, send)
