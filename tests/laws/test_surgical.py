"""Law 11, surgical: what callfuse adds to a request is all that changes in it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import JSON_REQUEST
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, every_dialect, meet, reply
from tests.support.model import History, Round, Style, User
from tests.support.plain import RESULT, again, new_call, saying, spin
from tests.support.rules import violations
from tests.support.streams import looping, styles

ADDED = re.compile(rb"""(,"callfuse":")?(?:\\n)*\[callfuse\](?:[^"\\]|\\.)*(?(1)"|(?="))""")
"""A text of callfuse's at the end of a JSON string, or under a key of its own."""


def told(kit: DialectKit, body: bytes) -> list[str]:
    """The ids of the results that carry a warning."""
    return [call_id for call_id, text in kit.results(body) if MARK in text]


@every_dialect
@given(data=st.data())
def test_a_warning_is_put_in_and_nothing_else_is_touched(kit: DialectKit, data: st.DataObject) -> None:
    """Big numbers, floats, escapes, order and white space: take the added texts out and the client's bytes are left."""
    history = data.draw(looping(before=data.draw(st.integers(3, 5))))
    request = ask(kit, history, stream=True, style=data.draw(styles()))
    met = meet(request, [reply(kit, saying("Ok."), stream=True)], "warn")
    (heard,) = met.app.heard
    assert heard.body != request.body
    assert ADDED.sub(b"", heard.body) == request.body
    assert heard.header(b"content-length") == str(len(heard.body)).encode()
    assert violations(kit.name, json.loads(heard.body)) == []


@every_dialect
@pytest.mark.parametrize("parts", [False, True], ids=["string", "parts"])
def test_the_warning_stands_in_the_repeated_calls_own_result(kit: DialectKit, parts: bool) -> None:
    """From the third equal call on, each has its warning with the running count, and the others have none."""
    request = ask(kit, spin(5, beside=True), stream=True, style=Style(parts=parts))
    met = meet(request, [reply(kit, saying("Ok."), stream=True)], "warn")
    body = met.app.heard[0].body
    assert told(kit, body) == ["call_s2", "call_s3", "call_s4"]
    texts = dict(kit.results(body))
    for call_id, count in (("call_s2", "3"), ("call_s3", "4"), ("call_s4", "5")):
        assert texts[call_id].startswith(RESULT)
        warning = texts[call_id].removeprefix(RESULT)
        assert warning.strip().startswith(MARK)
        assert "search" in warning
        assert count in warning


@every_dialect
def test_warnings_are_the_same_every_time(kit: DialectKit) -> None:
    """The warned request of an earlier turn is a prefix of the later one's, so that prompt caches keep hitting."""
    short, long = spin(3), spin(3).and_then(Round((new_call(),), ("news",)), User("And now?"))

    def warned(history: History) -> list[object]:
        met = meet(ask(kit, history, stream=True), [reply(kit, saying("Ok."), stream=True)], "warn")
        messages: list[object] = json.loads(met.app.heard[0].body)[kit.history_key]
        return messages

    earlier = warned(short)
    assert warned(long)[: len(earlier)] == earlier
    assert warned(short) == earlier


SIGNED = [
    (b"authorization", b"AWS4-HMAC-SHA256 Credential=x"),
    (b"x-amz-content-sha256", b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (b"content-digest", b"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"),
    (b"digest", b"SHA-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE="),
    (b"signature", b"sig1=:x:"),
]


@every_dialect
@pytest.mark.parametrize("signature", SIGNED, ids=lambda header: header[0].decode())
def test_a_signed_request_is_never_changed(kit: DialectKit, signature: tuple[bytes, bytes]) -> None:
    """Where a signature covers the body, a warning stays away and a steer takes its next rung."""
    headers = (*(header for header in JSON_REQUEST if header[0] != signature[0]), signature)
    request = ask(kit, spin(3), stream=True, headers=headers)
    warned = meet(request, [reply(kit, saying("Ok."), stream=True)], "warn")
    assert warned.app.heard[0].body == request.body
    request = ask(kit, spin(), stream=True, headers=headers)
    steered = meet(request, [reply(kit, again(), stream=True)], "chance_then_block")
    assert [heard.body for heard in steered.app.heard] == [request.body]
    assert b"call_first" not in steered.body
    assert MARK.encode() in steered.body


@every_dialect
def test_an_unsigned_payload_may_be_changed(kit: DialectKit) -> None:
    """`UNSIGNED-PAYLOAD` says that no signature covers the body."""
    headers = (*JSON_REQUEST, (b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"))
    met = meet(ask(kit, spin(3), stream=True, headers=headers), [reply(kit, saying("Ok."), stream=True)], "warn")
    assert told(kit, met.app.heard[0].body) == ["call_s2"]
