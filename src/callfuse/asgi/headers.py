"""Headers and paths: what callfuse reads of a request, and the few things that it changes for a call of the app."""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from callfuse.asgi.types import Headers, Message, Scope
from callfuse.dialects.addresses import path_to

SIGNATURES: Final = frozenset({b"content-digest", b"digest", b"signature", b"x-amz-content-sha256"})
BODY_BOUND: Final = frozenset(
    {b"content-length", b"etag", b"content-md5", b"digest", b"content-digest", b"repr-digest"}
)
"""Headers of an answer that bind its bytes."""
NOT_AGAIN: Final = frozenset({b"idempotency-key", b"content-length", b"content-encoding", b"transfer-encoding"})
"""Headers of a request that do not hold for another one."""


def read(message: Scope | Message) -> dict[bytes, bytes]:
    """Headers by name (lower case); of repeated ones the last."""
    return {name.lower(): value for name, value in message.get("headers") or ()}


def is_signed(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request is signed over its body, so that it must not be changed."""
    is_aws = headers.get(b"authorization", b"").startswith(b"AWS4-")
    if is_aws and headers.get(b"x-amz-content-sha256") != b"UNSIGNED-PAYLOAD":
        return True
    if SIGNATURES.isdisjoint(headers):
        return False
    return any(headers[name] != b"UNSIGNED-PAYLOAD" for name in SIGNATURES & headers.keys())


def without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    """The headers but for these names."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def for_body(scope: Scope, body: bytes | None, *, again: bool = False, identity: bool = False) -> Scope:
    """A copy of the scope as it came in, for a call of the app with this body (None: the one that came).

    `again`: the model is being asked again. `identity`: the answer is wanted in its plain bytes.
    """
    headers: Headers = list(scope.get("headers") or ())
    if body is not None:
        headers = without(headers, NOT_AGAIN if again else NOT_AGAIN - {b"idempotency-key"})
        headers.append((b"content-length", str(len(body)).encode()))
    if identity:
        headers = [*without(headers, frozenset({b"accept-encoding"})), (b"accept-encoding", b"identity")]
    copy = dict(scope)
    copy["headers"] = headers
    return copy


def route_to_model(scope: Scope, model: str, *, in_body: bool) -> bool:
    """Rewrite the path of a scope, a copy, for another model, where paths name models.

    False where neither the path nor the body (`in_body`) names one: then nobody else can be asked there.
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
