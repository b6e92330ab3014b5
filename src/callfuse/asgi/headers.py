"""Read headers and paths of requests, and change them for a call of the app."""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from callfuse.asgi.scopes import snapshot
from callfuse.asgi.types import Headers, Message, Scope
from callfuse.dialects.addresses import path_to

SIGNATURES: Final = frozenset({b"content-digest", b"digest", b"signature", b"x-amz-content-sha256"})
BODY_BOUND: Final = frozenset(
    {b"content-length", b"etag", b"content-md5", b"digest", b"content-digest", b"repr-digest"}
)
"""Headers of an answer that are valid only for its exact bytes."""
VIA: Final = b"x-callfuse-via"
"""The header of a request that another callfuse has guarded and forwarded."""
NOT_AGAIN: Final = frozenset({b"idempotency-key", b"content-length", b"content-encoding", b"transfer-encoding"})
"""Headers of a request that must not be sent again with another body."""


def read(message: Scope | Message) -> dict[bytes, bytes]:
    """Return headers by name (lower case). Of repeated headers, the last one counts."""
    return {name.lower(): value for name, value in message.get("headers") or ()}


def is_signed(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a signature covers the request's body, so that it must not be changed."""
    is_aws = headers.get(b"authorization", b"").startswith(b"AWS4-")
    if is_aws and headers.get(b"x-amz-content-sha256") != b"UNSIGNED-PAYLOAD":
        return True
    if SIGNATURES.isdisjoint(headers):
        return False
    return any(headers[name] != b"UNSIGNED-PAYLOAD" for name in SIGNATURES & headers.keys())


def without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    """Return the headers except those with these names (lower case)."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def with_via(scope: Scope) -> Scope:
    """Copy the scope, with a header that marks the request as guarded."""
    return {**scope, "headers": [*without(scope.get("headers") or (), frozenset({VIA})), (VIA, b"callfuse")]}


def for_body(scope: Scope, body: bytes | None, *, again: bool = False, identity: bool = False) -> Scope:
    """Copy the scope for a call of the app with this body (None: the original one).

    `again`: the model is asked again, so an idempotency key is dropped, and `state` is copied. `identity`: ask for an
    uncompressed answer.
    """
    headers: Headers = list(scope.get("headers") or ())
    if body is not None:
        headers = without(headers, NOT_AGAIN if again else NOT_AGAIN - {b"idempotency-key"})
        headers = [(name, _in_utf8(value) if name.lower() == b"content-type" else value) for name, value in headers]
        headers.append((b"content-length", str(len(body)).encode()))
    if identity:
        headers = [*without(headers, frozenset({b"accept-encoding"})), (b"accept-encoding", b"identity")]
    copy = snapshot(scope) if again else dict(scope)
    copy["headers"] = headers
    return copy


def _in_utf8(content_type: bytes) -> bytes:
    """Return a content type for a body that callfuse has written: without a charset other than UTF-8."""
    media_type, _, parameters = content_type.partition(b";")
    is_other = b"charset" in parameters.lower() and b"utf-8" not in parameters.lower()
    return media_type.strip() if is_other else content_type


def route_to_model(scope: Scope, model: str, *, in_body: bool) -> bool:
    """Rewrite the path of a scope, which must be a copy, if it names the model.

    Returns False if neither the path nor the body (`in_body`) names a model, so no other one can be asked.
    """
    path = path_to(scope["path"], model)
    if path is None or (path == scope["path"] and not in_body):
        return False
    scope["path"] = path
    if raw := scope.get("raw_path"):
        came, mark, query = raw.decode("latin-1").partition("?")
        there = path_to(came, quote(model, safe=":@"))
        scope["raw_path"] = f"{came if there is None else there}{mark}{query}".encode("latin-1")
    return True
