"""Gates in front of the proxy, which refuse a request before anything reads or answers it.

`CrossSiteGate` is in front of the guard, which answers commands by itself; `FrontGate` of the admin page, too.
"""

from collections.abc import Awaitable, Callable

from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.refusing import Refusing

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class CrossSiteGate:
    """Wraps the app in front of a proxy. Requests that may not use the proxy's credentials do not reach the app, which
    answers some by itself: commands in the chat change the settings of sessions."""

    def __init__(self, app: App, proxy: ReverseProxy) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and self._proxy.is_foreign(scope):
            return self._proxy.refuse_foreign(scope, send)
        return self._app(scope, receive, send)


class FrontGate:
    """Wraps all that is served over HTTP. Requests for a `Host` that is not a name of the proxy, and those whose body
    comes in a transfer coding that it does not understand, do not reach it."""

    def __init__(self, app: App, proxy: Refusing) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and (failure := self._proxy.refusal_of(scope)) is not None:
            return self._proxy.refuse(scope, send, failure)
        return self._app(scope, receive, send)
