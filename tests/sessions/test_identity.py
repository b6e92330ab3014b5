"""Who is who: lanes are scoped by credential, session and conversation, and hold no secret."""

import pytest

from callfuse.sessions.identity import lane_of
from tests.sessions.talks import request

HELLO = request("user: Find it.")
KEY = {b"authorization": b"Bearer key-of-one-tenant"}


def test_a_conversation_is_its_own_session() -> None:
    """Without an id the fingerprint names it: system prompt and first user message."""
    lane = lane_of(KEY, HELLO)
    assert not lane.named
    assert lane.session == lane.fingerprint.hex()
    assert lane_of(KEY, request("user: Find it.", "a=x", "user: And on.")) == lane
    assert lane_of(KEY, request("user: Find that.")) != lane


def test_a_session_id_is_a_name_and_no_more() -> None:
    """Parallel conversations of one session have lanes of their own."""
    headers = KEY | {b"x-callfuse-session-id": b" session-1 "}
    one, other = lane_of(headers, HELLO), lane_of(headers, request("user: Another."))
    assert one.session == other.session == "session-1"
    assert one.named
    assert one != other
    assert one != lane_of(KEY, HELLO)


@pytest.mark.parametrize("header", [b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"])
def test_credentials_scope_a_lane(header: bytes) -> None:
    """No tenant reaches another's, and no credential stands in a lane."""
    one, other, none = (lane_of(headers, HELLO) for headers in ({header: b"secret-1"}, {header: b"secret-2"}, {}))
    assert len({one, other, none}) == 3
    assert b"secret" not in one.credential
    assert "secret" not in repr(one)


@pytest.mark.parametrize(
    "given", [b"short", b"has blanks in it", b"x" * 201, "sitzung-ä-ä".encode("latin-1"), b"a/b/c/d/e"]
)
def test_an_odd_session_id_is_hashed(given: bytes) -> None:
    """What is no plain id neither fills logs nor writes into them."""
    session = lane_of({b"x-callfuse-session-id": given}, HELLO).session
    assert len(session) == 32
    assert given.decode("latin-1") not in session
    assert lane_of({b"x-callfuse-session-id": given}, HELLO).session == session


@pytest.mark.parametrize("given", [b"12345678", b"a.b:c_d-e", b"x" * 200])
def test_a_plain_session_id_stays(given: bytes) -> None:
    """Letters, digits and four marks, 8 to 200 of them."""
    assert lane_of({b"x-callfuse-session-id": given}, HELLO).session == given.decode()


@pytest.mark.parametrize("given", [b"", b"   "])
def test_an_empty_session_id_is_none(given: bytes) -> None:
    """The fingerprint takes its place."""
    assert not lane_of({b"x-callfuse-session-id": given}, HELLO).named
