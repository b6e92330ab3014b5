"""Control access to the admin page: by the token, or by the cookie that a browser gets in exchange.

The cookie has a value derived from the token, so that no browser stores the token itself. A new token invalidates all
cookies. A program with the token may open the page in a browser by a code that is valid for one login, so that the
token is in no URL. Comparisons take constant time.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

CODE_S: Final = 60.0
"""Seconds for which a code is valid."""


class Access:
    """The token, and the cookie and client names derived from it. `clock` returns seconds."""

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = token.encode()
        self._clock = clock
        self._code: tuple[bytes, float] | None = None
        # Cookies ignore ports: with equal names, two instances on one host would overwrite each other's cookie.
        self._name = f"callfuse_{self._derive(b'name')[:8]}"
        self._cookie = self._derive(b"cookie")

    def is_token(self, token: str) -> bool:
        """Whether a text is the token."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def allows(self, request: Request) -> bool:
        """Whether a request has the token (`Authorization: Bearer`) or the cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(token.strip()):
            return True
        cookie = request.cookies.get(self._name, "")
        return hmac.compare_digest(cookie.encode("utf-8", "replace"), self._cookie.encode())

    def grant(self, request: Request, response: Response) -> None:
        """Set the cookie on a response: for the mount path only, HttpOnly and SameSite=Strict."""
        path = quote(request.scope.get("root_path", ""), safe="/~")
        secure = request.url.scheme == "https"
        response.set_cookie(self._name, self._cookie, path=path or "/", secure=secure, httponly=True, samesite="strict")

    def make_code(self) -> str:
        """Make a code for one login within `CODE_S` seconds. It replaces the previous code."""
        code = secrets.token_urlsafe(32)
        self._code = code.encode(), self._clock() + CODE_S
        return code

    def take_code(self, code: str) -> bool:
        """Whether this is the newest code, which is then invalid."""
        if self._code is None or not hmac.compare_digest(code.encode("utf-8", "replace"), self._code[0]):
            return False
        (_, end), self._code = self._code, None
        return self._clock() < end

    def tag(self, credential: bytes) -> str:
        """Return a short name for the client with this credential hash. It is useless outside of this page."""
        return self._derive(b"client " + credential)[:8]

    def _derive(self, what: bytes) -> str:
        return hmac.new(self._token, b"callfuse admin " + what, "sha256").hexdigest()


def is_same_origin(request: Request) -> bool:
    """Whether a form was sent from a page of this origin, or by a client that is not a browser.

    Browsers send `Sec-Fetch-Site` to trustworthy origins (https, localhost), and `Origin` to others.
    """
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")
