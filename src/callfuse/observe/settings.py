"""Define and validate the settings of the blocks `events` and `findings`."""

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from callfuse.observe.naming import check_names
from callfuse.policy.fields import SECRET, Strict, Whole, lower

DEFAULT_KINDS: Final = ("finding", "blown", "fail_open", "store_down")
SHORTEST_SECRET: Final = 16
"""Characters."""
WEBHOOK_HINT: Final = "use http:// or https:// with a host, as in https://alerts.example.com/callfuse"


def _webhook(value: str) -> str:
    """Check the URL of a webhook. Raises ValueError, which does not quote the URL, because its path may be a secret."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError(f"it is not a URL; {WEBHOOK_HINT}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(WEBHOOK_HINT)
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it contains white space or control characters; {WEBHOOK_HINT}")
    return value


def _secret(value: str) -> str:
    if len(value) < SHORTEST_SECRET:
        raise ValueError(f"use {SHORTEST_SECRET} or more characters")
    return value


def _kinds(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise ValueError("name at least one; to send nothing, leave out the webhook")
    check_names(values)
    return values


class EventsSettings(Strict):
    """Where events are sent: a webhook gets each event in its own POST (`docs/observing.md`)."""

    webhook: Annotated[Annotated[str, AfterValidator(_webhook)] | None, Field(json_schema_extra=SECRET)] = None
    """The URL of the webhook; off if not set. Only its host is ever printed."""
    secret: Annotated[Annotated[str, AfterValidator(_secret)] | None, Field(json_schema_extra=SECRET)] = None
    """The key that signs each POST: `x-callfuse-signature` is the HMAC-SHA256 of the body, in hex. Never printed."""
    kinds: Annotated[tuple[str, ...], AfterValidator(_kinds)] = DEFAULT_KINDS
    """Which events to send: names of events, or kinds of findings."""
    format: Annotated[Literal["json", "slack"], BeforeValidator(lower)] = "json"
    """The form of the body: the event's fields as JSON, or a text for Slack and compatible services."""


class FindingsSettings(Strict):
    """What was found, for the admin page to list. In a file if `path` names one, else in a Redis or Valkey that is the
    `store`, else in the memory of the process until that ends."""

    keep_days: Annotated[Whole, Field(ge=1, le=3650)] = 30
    """For how many days findings are kept. The newest 50,000 are kept at most, 5,000 in memory."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """A SQLite file for findings. callfuse creates it. Several workers may use the same file, on a local disk."""
