"""Who may look: whoever sends the token, or the cookie that a browser gets for it.

The cookie holds a value derived from the token, so that nothing in a browser is the token; another token makes all
cookies void. Every comparison takes the same time, however much of a guess is right.
"""

import hmac
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response


class Access:
    """The one token, and what follows from it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        # Cookies know no ports: two of us on one host would put each other's out.
        self._name = f"callfuse_{self._derived(b'name')[:8]}"
        self._cookie = self._derived(b"cookie")

    def opens(self, token: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def allows(self, request: Request) -> bool:
        """Whether a request brings the token or the cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.opens(token.strip()):
            return True
        cookie = request.cookies.get(self._name, "")
        return hmac.compare_digest(cookie.encode("utf-8", "replace"), self._cookie.encode())

    def grant(self, request: Request, response: Response) -> None:
        """Have the browser send the cookie from now on: below the mount path, to no script, from no other site."""
        path = quote(request.scope.get("root_path", ""), safe="/~")
        secure = request.url.scheme == "https"
        response.set_cookie(self._name, self._cookie, path=path or "/", secure=secure, httponly=True, samesite="strict")

    def tag(self, credential: bytes) -> str:
        """What a client is called, whose credential has this hash: short, and of use here only."""
        return self._derived(b"client " + credential)[:8]

    def _derived(self, what: bytes) -> str:
        return hmac.new(self._token, b"callfuse admin " + what, "sha256").hexdigest()


def is_own(request: Request) -> bool:
    """Whether a form was sent from a page of this origin, or by no page at all. Browsers say so of themselves: with
    `Sec-Fetch-Site` to hosts that they trust, else with `Origin`."""
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")
