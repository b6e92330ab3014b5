"""Reads session ids from request bodies of any dialect, and removes what changes per request from an opening.

The functions return a field's path and its value, of any type; callers use only texts. The fields `user` and
`safety_identifier` are never read: they name a person, who has many sessions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from callfuse.wire.jsontext import NotJSON, loads

Payload = Mapping[str, Any]
NOTHING: Final[Payload] = {}
Source = tuple[str, object]

CHAIN: Final = "previous_response_id"
INTERACTION: Final = "previous_interaction_id"
"""The key of Gemini's Interactions API that names the interaction which a request continues."""
CACHE_KEY: Final = "prompt_cache_key"

FIELDS: Final = frozenset(
    {
        "metadata",
        "litellm_metadata",
        "litellm_session_id",
        "litellm_trace_id",
        "session_id",
        "conversation",
        CHAIN,
        INTERACTION,
        CACHE_KEY,
    }
)
"""The top-level keys that may contain a session id. A body without them has none."""

MAX_USER_ID: Final = 4096
"""The most characters of a `metadata.user_id` that is read; Claude Code's have about 200."""

_IN_USER_ID: Final = re.compile(r"user_.*_session_([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
"""Claude Code before 2.1.78: `user_<digest>_account_<uuid or nothing>_session_<uuid>`."""

BILLING: Final = b"x-anthropic-billing-header:"
"""Claude Code, since 2.1.36, has this within the first 64 bytes of an opening."""
_BILLING_LINE: Final = re.compile(rb"(\A|\x00)" + BILLING + rb"[^\n\x00]*")


def callfuse_id(payload: Payload) -> Source:
    """Return the session id that clients set for callfuse."""
    return "metadata.callfuse_session_id", _metadata(payload).get("callfuse_session_id")


def known_ids(payload: Payload) -> Iterator[Source]:
    """Yield the ids by which clients, gateways and vendors know the session, most reliable first."""
    metadata = _metadata(payload)
    yield "metadata.session_id", metadata.get("session_id")
    yield "litellm_metadata.session_id", _metadata(payload, "litellm_metadata").get("session_id")
    yield "litellm_session_id", payload.get("litellm_session_id")
    yield "litellm_trace_id", payload.get("litellm_trace_id")
    yield "session_id", payload.get("session_id")
    yield "metadata.user_id", _claude_code_session(metadata.get("user_id"))
    conversation = payload.get("conversation")
    yield "conversation", conversation.get("id") if isinstance(conversation, dict) else conversation
    yield CHAIN, payload.get(CHAIN) or payload.get(INTERACTION)


def cache_key(payload: Payload) -> Source:
    """Return the cache key, a weak session id: some clients send the same key for all conversations."""
    return CACHE_KEY, payload.get(CACHE_KEY)


def without_billing(opening: bytes) -> bytes:
    """Return an opening (texts separated by NUL) without Claude Code's billing line, which differs in each request
    because it has a digest of the whole request."""
    return _BILLING_LINE.sub(rb"\1", opening, count=1)


def _metadata(payload: Payload, key: str = "metadata") -> Payload:
    metadata = payload.get(key)
    return metadata if isinstance(metadata, dict) else {}


def _claude_code_session(user_id: object) -> object:
    """Return the session in Claude Code's user id, which is a JSON object or a text that ends with the session."""
    if not isinstance(user_id, str) or len(user_id) > MAX_USER_ID:
        return None
    if not user_id.startswith("{"):
        found = _IN_USER_ID.fullmatch(user_id)
        return found[1] if found else None
    try:
        return loads(user_id).get("session_id")
    except NotJSON:
        return None
