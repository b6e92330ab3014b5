"""What an SDK talks to in a test of bytes: no socket, one answer, and what it was asked."""

from collections.abc import Callable
from typing import Any


class SDKVendor:
    """Stands where an SDK's socket would be: gives it a body and keeps what it sent.

    It is the handler of an HTTP client's `MockTransport`; `respond` is the client library's class of responses.
    """

    def __init__(self, respond: Callable[..., Any]) -> None:
        self._respond = respond
        self.body, self.kind, self.asked = b"", "", b""

    def __call__(self, request: Any) -> Any:
        self.asked = request.content
        return self._respond(200, headers={"content-type": self.kind}, content=self.body)
