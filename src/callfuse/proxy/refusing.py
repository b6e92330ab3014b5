"""Refuse requests that callfuse does not serve: those with a foreign `Host`, and those that it cannot read."""

import logging
from collections.abc import Callable
from typing import Final

from callfuse.config.serve import ServeSettings
from callfuse.proxy.asgi import Scope, Send
from callfuse.proxy.failures import MISDIRECTED, UNKNOWN_CODING, Failure, openai_error
from callfuse.proxy.headers import has_unknown_coding
from callfuse.proxy.hosts import is_own_host

_log = logging.getLogger("callfuse.proxy")

LONGEST_HOST: Final = 100
"""The most characters of a foreign `Host` that are quoted."""

ErrorBody = Callable[[str, int, str], tuple[bytes, str]]
"""(path, status, message) -> (body, content type): formats an error in the dialect of the path."""


class Refusing:
    """Decides which requests are refused before anything reads them, and refuses them. `error_body` defaults to the
    error body of the OpenAI APIs."""

    def __init__(self, settings: ServeSettings, error_body: ErrorBody | None = None) -> None:
        self._settings = settings
        self._error_body = error_body or openai_error

    def configure(self, settings: ServeSettings) -> None:
        """Use these settings for requests from now on."""
        self._settings = settings

    def foreign_host(self, scope: Scope) -> str | None:
        """Return the `Host` of an HTTP request if it is not a name of this proxy; None if it is, or if there is no
        `Host`."""
        if self._settings.is_any_host:
            return None
        server = scope.get("server")
        local, names = server[0] if server else None, self._settings.own_names
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]
        return next((host for host in hosts if not is_own_host(host, names, local)), None)

    def refusal_of(self, scope: Scope) -> Failure | None:
        """Return why an HTTP request is refused before anything else reads it; None if it is not."""
        if (host := self.foreign_host(scope)) is not None:
            reason = (
                f"the Host {host[:LONGEST_HOST]!a} is not a name of this proxy; if it should be one, add it to "
                "serve.hosts"
            )
            return Failure(MISDIRECTED, reason)
        return UNKNOWN_CODING if has_unknown_coding(scope["headers"]) else None

    async def refuse(self, scope: Scope, send: Send, failure: Failure) -> None:
        """Answer a request with a failure, and log it."""
        _log.warning("%s %s: %d, %s", scope["method"], printable_path(scope), failure.status, failure.reason)
        body, content_type = self._error_body(scope["path"], failure.status, failure.reason)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        if failure.is_own:
            headers.append((b"x-should-retry", b"false"))
        if failure.unread:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def printable_path(scope: Scope) -> str:
    """Return the path for a log line: escaped, and without the query, which may hold a key."""
    return ascii(scope["path"])[1:-1]
