"""The names that request bodies, of whatever dialect, give to their sessions, and openings as they last.

In: a parsed body. Out: sources (a field's path) with what stands there, of any type; who asks takes only texts.
Never read: `user`, `safety_identifier`. They name a person, who has many sessions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from callfuse.wire.jsontext import NotJSON, loads

Payload = Mapping[str, Any]
NOTHING: Final[Payload] = {}
Source = tuple[str, object]

CHAIN: Final = "previous_response_id"
CACHE_KEY: Final = "prompt_cache_key"

FIELDS: Final = frozenset({"metadata", "litellm_session_id", "session_id", "conversation", CHAIN, CACHE_KEY})
"""The keys of a body below which all the names are. A body without any of them names no session."""

MAX_USER_ID: Final = 4096
"""Characters of a `metadata.user_id` that is read as JSON; Claude Code's have about 200."""

_IN_USER_ID: Final = re.compile(r"user_.*_session_([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
"""Claude Code before 2.1.78: `user_<digest>_account_<uuid or nothing>_session_<uuid>`."""

BILLING: Final = b"x-anthropic-billing-header:"
"""In the first 64 bytes of an opening where Claude Code asks, from 2.1.36 on."""
_BILLING_LINE: Final = re.compile(rb"(\A|\x00)" + BILLING + rb"[^\n\x00]*")


def callfuse_id(payload: Payload) -> Source:
    """The id that is meant for callfuse."""
    return "metadata.callfuse_session_id", _metadata(payload).get("callfuse_session_id")


def known_ids(payload: Payload) -> Iterator[Source]:
    """The ids by which clients, gateways and vendors know the session, the surest first."""
    metadata = _metadata(payload)
    yield "metadata.session_id", metadata.get("session_id")
    yield "litellm_session_id", payload.get("litellm_session_id")
    yield "session_id", payload.get("session_id")
    yield "metadata.user_id", _claude_code_session(metadata.get("user_id"))
    conversation = payload.get("conversation")
    yield "conversation", conversation.get("id") if isinstance(conversation, dict) else conversation
    yield CHAIN, payload.get(CHAIN)


def cache_key(payload: Payload) -> Source:
    """What may tell conversations apart but need not: some clients send one for all of them."""
    return CACHE_KEY, payload.get(CACHE_KEY)


def without_billing(opening: bytes) -> bytes:
    """An opening (texts parted by NUL) without the line in front of the system prompt that each request has anew: it
    holds a digest of the whole request."""
    return _BILLING_LINE.sub(rb"\1", opening, count=1)


def _metadata(payload: Payload) -> Payload:
    metadata = payload.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _claude_code_session(user_id: object) -> object:
    """The session in Claude Code's user id, which is a JSON object or a text with the session at its end."""
    if not isinstance(user_id, str) or len(user_id) > MAX_USER_ID:
        return None
    if not user_id.startswith("{"):
        found = _IN_USER_ID.fullmatch(user_id)
        return found[1] if found else None
    try:
        return loads(user_id).get("session_id")
    except NotJSON:
        return None
