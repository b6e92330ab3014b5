"""Two apps beside each other: requests for the admin path go to the admin app, all others to the guarded one."""

from collections.abc import Awaitable

from callfuse.asgi.types import ASGIApp, Receive, Scope, Send
from callfuse.proxy.settings import AdminSettings


class Beside:
    """`app` as it is, but for the admin path and what lies below it: no such request ever reaches `app`."""

    def __init__(self, app: ASGIApp, admin: ASGIApp, settings: AdminSettings) -> None:
        self._app = app
        self._admin = admin
        self._path = settings.path
        self._holds = settings.holds

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """One ASGI connection; a lifespan has no path."""
        path = scope.get("path", "")
        if path.startswith(self._path) and self._holds(path):
            scope = {**scope, "root_path": scope.get("root_path", "") + self._path}
            return self._admin(scope, receive, send)
        return self._app(scope, receive, send)
