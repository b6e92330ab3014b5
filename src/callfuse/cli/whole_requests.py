"""Extend uvicorn's protocol over httptools, so that each request is read according to RFC 9110.

uvicorn ends a request with an upgrade after its head, and reads its body as bytes of another protocol; a proxy would
then forward a length, but no body. It also adds trailers to the headers, so a trailer could be an unchecked
`authorization`. Over h11 it does neither.
"""

from typing import Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

INVALID: Final = "Invalid HTTP request received."  # uvicorn's text


class WholeRequests(HttpToolsProtocol):
    """Ignores upgrades and reads the body that follows, drops trailers, and refuses CONNECT with 400."""

    _is_head_over = False

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, in a loop, because pipelined requests may each ask for an upgrade."""
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        try:
            while (end := self._feed(rest)) is not None:
                rest = rest[end:]
                self._parse_again()
        except httptools.HttpParserError:
            self.logger.warning(INVALID)
            self.send_400_response(INVALID)

    def _feed(self, data: bytes | memoryview) -> int | None:
        """Parse bytes. Returns the position after a head with an upgrade, None if there is none."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return int(upgrade.args[0])
        return None

    def _parse_again(self) -> None:
        """Parse the last head again, without its upgrade, so that the body is read.

        Only the token in `connection` is removed: the app still gets `upgrade`, and refuses WebSockets. Raises
        HttpParserError if there is still an upgrade, as for CONNECT.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        for name, value in self.headers:
            kept = _without_upgrade(value) if name == b"connection" else value
            if kept or name != b"connection":
                lines.append(b"%s: %s" % (name, kept))
        self.parser = httptools.HttpRequestParser(self)
        if hasattr(self.parser, "set_dangerous_leniencies"):  # as in uvicorn; httptools < 0.6.3 does not have it
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if self._feed(b"\r\n".join([*lines, b"", b""])) is not None:
            raise httptools.HttpParserError("a method that ends HTTP")

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._is_head_over = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. After the head it is a trailer."""
        if not self._is_head_over:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the exchange, unless the head must be parsed again."""
        self._is_head_over = True
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request, unless the parser has skipped its body."""
        if not self.parser.should_upgrade():
            super().on_message_complete()


def _without_upgrade(connection: bytes) -> bytes:
    """Return the value of a `connection` header without the token `upgrade`."""
    tokens = [token.strip() for token in connection.split(b",")]
    return b", ".join(token for token in tokens if token and token.lower() != b"upgrade")
