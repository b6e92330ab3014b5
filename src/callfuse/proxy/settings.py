"""The settings of the `serve` block, validated. Times are seconds."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from callfuse.policy.fields import Seconds, Strict, Whole

LOG_LEVELS = ("debug", "info", "warning", "error")
RIGHT_UPSTREAM = "use http:// or https:// with a host, as in https://api.openai.com"


def _upstream(value: str) -> str:
    """The base URL of the vendor. What the client asks for is added to its path, so it ends with its path."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        # The text of urlsplit may quote the URL, credentials and all, so only the port's own complaint is kept.
        what = "its port is no number from 1 to 65535" if str(error).startswith("Port") else "it is no URL"
        raise ValueError(f"{what}; {RIGHT_UPSTREAM}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(RIGHT_UPSTREAM)
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it has white space or control characters in it; {RIGHT_UPSTREAM}")
    if "?" in value or "#" in value:
        raise ValueError(f"leave out what begins with ? or #: each request brings its own query; {RIGHT_UPSTREAM}")
    return value


def _lower(value: Any) -> Any:
    """Log levels are written in capitals as often as not."""
    return value.lower() if isinstance(value, str) else value


class ServeSettings(Strict):
    """The `serve` block: where `callfuse serve` listens, what it stands in front of, and how long it waits."""

    upstream: Annotated[str, AfterValidator(_upstream)] | None = None
    """The vendor's base URL, without query. May hold `user:password@`, which is never printed."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for every one."""
    port: Annotated[Whole, Field(ge=0, le=65535)] = 8100
    """0 takes any free port and prints which."""
    workers: Annotated[Whole, Field(ge=1)] = 1
    """Processes. Each keeps its own sessions in memory."""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    connect_timeout_s: Seconds = 10
    """Until the connection to the upstream stands."""
    first_byte_timeout_s: Seconds = 600
    """Until the upstream's answer begins; long, because models think before they speak."""
    idle_timeout_s: Seconds = 300
    """The longest pause within an answer."""
    shutdown_timeout_s: Seconds = 30
    """How long open streams may go on after the signal to stop."""
    max_connections: Annotated[Whole, Field(ge=0)] = 1000
    """Connections to the upstream at a time, in each worker; 0 is without limit."""
