"""Turn exceptions of aiohttp into a status and a reason that is safe to show.

The reasons name only hosts. The messages of the exceptions may contain whole URLs, with the credentials of a proxy or
the key in a query.
"""

import os
import ssl
from dataclasses import dataclass
from typing import Final

import aiohttp
import orjson

FAILURES = (aiohttp.ClientError, OSError, ValueError)
"""All exceptions that a request to the upstream may raise. Timeouts are OSErrors; ValueError means an invalid
request."""

BAD_REQUEST, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, REQUEST_TIMEOUT, MISDIRECTED = 400, 403, 404, 405, 408, 421
NOT_IMPLEMENTED, BAD_GATEWAY, GATEWAY_TIMEOUT = 501, 502, 504


@dataclass(frozen=True, slots=True)
class Failure:
    """The HTTP status and the reason that the client gets for a failure of the upstream."""

    status: int
    reason: str
    unread: bool = False
    """Whether the rest of the request stays unread, so that the client's connection ends after the answer."""

    @property
    def is_own(self) -> bool:
        """Whether the proxy itself refuses the request, so that a retry would fail, too."""
        return self.status < BAD_GATEWAY


LATE: Final = Failure(REQUEST_TIMEOUT, "the rest of the request did not arrive in time; see serve.read_timeout_s", True)
WRONG_LENGTH: Final = Failure(BAD_REQUEST, "the length of the request's body differs from its content-length", True)
UNKNOWN_CODING: Final = Failure(
    NOT_IMPLEMENTED,
    "a request may only have the transfer-encoding chunked; to compress its body, use content-encoding",
    True,
)
TUNNEL: Final = Failure(
    NOT_ALLOWED, "this proxy opens no tunnels; send requests to its own address, with the vendor's paths", True
)


def explain(error: BaseException, upstream: str, proxy: str | None) -> Failure:
    """Describe an exception as a failure. `upstream` and `proxy` are origins without credentials."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Failure(GATEWAY_TIMEOUT, f"no connection to {proxy or upstream} within the connect timeout")
        case TimeoutError():
            return Failure(GATEWAY_TIMEOUT, f"{upstream} was silent for longer than the timeout")
        case aiohttp.ClientConnectorDNSError():
            return Failure(BAD_GATEWAY, f"the host name of {proxy or upstream} cannot be resolved")
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            why = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else "it does not match"
            return Failure(BAD_GATEWAY, f"the certificate of {upstream} is not accepted: {why}")
        case aiohttp.ClientConnectorSSLError():
            return Failure(BAD_GATEWAY, f"the TLS handshake with {upstream} failed")
        case aiohttp.ClientHttpProxyError(status=status):
            return Failure(BAD_GATEWAY, f"the proxy {proxy} answered {status} when asked for {upstream}")
        case aiohttp.ClientProxyConnectionError():
            return Failure(BAD_GATEWAY, f"cannot connect to the proxy {proxy}{_why(error)}")
        case aiohttp.ClientConnectorError():
            return Failure(BAD_GATEWAY, f"cannot connect to {upstream}{_why(error)}")
        case aiohttp.ServerDisconnectedError():
            return Failure(BAD_GATEWAY, f"{upstream} closed the connection before it answered")
        case aiohttp.ClientPayloadError():
            return Failure(BAD_GATEWAY, f"{upstream} closed the connection before the end of its answer")
        case aiohttp.ClientResponseError():
            return Failure(BAD_GATEWAY, f"{upstream} did not answer with valid HTTP")
        case aiohttp.InvalidURL():
            return Failure(BAD_REQUEST, "the request has a target that cannot be forwarded")
        case aiohttp.ClientError() | OSError():
            return Failure(BAD_GATEWAY, f"the connection to {upstream} broke{_why(error)}")
        case _:
            return Failure(BAD_REQUEST, "the request has a header that cannot be forwarded")


def forget_frames(error: BaseException) -> BaseException:
    """Drop the tracebacks of an exception and of its causes. Returns the same exception.

    aiohttp keeps the exception in its stream, and the frames refer to the stream and to the exchange: a reference
    cycle, which would keep bodies in memory until the next garbage collection.
    """
    before: BaseException | None = error
    while before is not None and before.__traceback__ is not None:
        before.__traceback__ = None
        before = before.__cause__ or before.__context__
    return error


def _why(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return f": {os.strerror(number)}" if isinstance(number, int) and number > 0 else ""


def openai_error(_path: str, status: int, message: str) -> tuple[bytes, str]:
    """Format an error as the OpenAI APIs do, which most clients can read. Returns body and content type."""
    kind = "invalid_request_error" if status < BAD_GATEWAY else "upstream_error"
    code = {BAD_GATEWAY: "upstream_unreachable", GATEWAY_TIMEOUT: "upstream_timeout"}.get(status)
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}), "application/json"
