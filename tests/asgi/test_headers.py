"""Headers: which requests must not be changed, and what goes with another body."""

import pytest

from callfuse.asgi import headers
from callfuse.asgi.types import Scope

AWS = b"AWS4-HMAC-SHA256 Credential=AKID/20261120/us-east-1/bedrock/aws4_request, Signature=ab"


@pytest.mark.parametrize(
    ("given", "signed"),
    [
        ({}, False),
        ({b"authorization": b"Bearer sk-1"}, False),
        ({b"authorization": AWS}, True),
        ({b"authorization": AWS, b"x-amz-content-sha256": b"e3b0c442"}, True),
        ({b"authorization": AWS, b"x-amz-content-sha256": b"UNSIGNED-PAYLOAD"}, False),
        ({b"x-amz-content-sha256": b"e3b0c442"}, True),
        ({b"x-amz-content-sha256": b"UNSIGNED-PAYLOAD"}, False),
        ({b"content-digest": b"sha-256=:x:"}, True),
        ({b"digest": b"SHA-256=x"}, True),
        ({b"signature": b"sig1=:x:"}, True),
        (
            {b"authorization": AWS, b"x-amz-content-sha256": b"UNSIGNED-PAYLOAD", b"content-digest": b"sha-256=:x:"},
            True,
        ),
    ],
)
def test_which_requests_are_signed(given: dict[bytes, bytes], signed: bool) -> None:
    """Those whose body is bound by a signature or a digest."""
    assert headers.is_signed(given) is signed


def test_names_are_read_in_lower_case() -> None:
    """Of repeated ones the last counts; a scope without headers has none."""
    assert headers.read({"headers": [(b"X-A", b"1"), (b"x-a", b"2"), (b"B", b"3")]}) == {b"x-a": b"2", b"b": b"3"}
    assert headers.read({}) == {}
    assert headers.read({"headers": None}) == {}


def scope() -> Scope:
    """A request as it came in."""
    given = [
        (b"Host", b"a"),
        (b"Content-Length", b"7"),
        (b"Content-Encoding", b"gzip"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Idempotency-Key", b"once"),
        (b"Accept-Encoding", b"gzip, br"),
        (b"Authorization", b"Bearer x"),
    ]
    return {"type": "http", "headers": given, "path": "/a", "state": {}, "extensions": {"x": {}}}


def test_the_same_body_needs_no_other_headers() -> None:
    """A copy, so that what the app writes into it does not reach the next call."""
    given = scope()
    made = headers.for_body(given, None)
    assert made == given
    assert made is not given
    made["root_path"] = "/mounted"
    assert "root_path" not in given
    assert made["state"] is given["state"]


def test_another_body_brings_its_length() -> None:
    """Plain bytes of that length, asked for once."""
    made = headers.read(headers.for_body(scope(), b"four"))
    assert made[b"content-length"] == b"4"
    assert made[b"idempotency-key"] == b"once"
    assert made[b"accept-encoding"] == b"gzip, br"
    assert made[b"authorization"] == b"Bearer x"
    assert not made.keys() & {b"content-encoding", b"transfer-encoding"}


def test_asking_again_is_another_request() -> None:
    """It has no idempotency key, and wants plain bytes."""
    given = scope()
    made = headers.read(headers.for_body(given, b"four", again=True, identity=True))
    assert b"idempotency-key" not in made
    assert made[b"accept-encoding"] == b"identity"
    assert made[b"host"] == b"a"
    assert given == scope()
