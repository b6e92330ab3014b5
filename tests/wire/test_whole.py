"""A whole body as one frame: it is there when the body ends, in any cutting, and its integers keep their digits."""

import json

import pytest

from callfuse.wire import WHOLE
from callfuse.wire.jsontext import NotJSON, UnreadableJSON
from callfuse.wire.values import MOST_VALUES
from tests.support.wire import bytewise

BODY = b'{"id": 12345678901234567891, "text": "x"}\n'


@pytest.mark.parametrize("chunks", [[BODY], [BODY[:9], b"", BODY[9:]], list(bytewise(BODY))])
def test_the_body_is_the_frame(chunks: list[bytes]) -> None:
    """No frame comes before the end, and none looks as if it had."""
    framer = WHOLE.framer()
    for at, chunk in enumerate(chunks):
        assert framer.feed(chunk) == []
        assert framer.waiting == len(b"".join(chunks[: at + 1]))
        assert not framer.empty
        assert not chunk.endswith(WHOLE.frame_end)
    assert framer.flush() == BODY
    assert framer.flush() == b""
    assert framer.waiting == 0


def test_the_payload() -> None:
    """Wide integers are exact, and the frame's text is the frame."""
    assert WHOLE.payload(BODY) == {"id": 12345678901234567891, "text": "x"}
    assert WHOLE.payload(b'{"a": 1}') == {"a": 1}
    assert WHOLE.text(BODY) == BODY
    assert WHOLE.with_text(BODY, b"{}") == b"{}"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b"{} {}"])
def test_what_is_no_object_has_no_payload(body: bytes) -> None:
    """Nor has what is no JSON."""
    with pytest.raises(NotJSON):
        WHOLE.payload(body)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_other_encodings(encoding: str) -> None:
    """Are read where Python's own reader reads them."""
    assert WHOLE.payload('{"a": "\u00e9"}'.encode(encoding)) == {"a": "\u00e9"}


DEEP = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
LONG = b'{"a":' + b"1" * 501 + b"}"
MANY = b'{"a":[' + b"1," * MOST_VALUES + b"1]}"


@pytest.mark.parametrize("body", [DEEP, LONG, MANY, b"[1]", b'{"a":"\xff"}', b'\xff\xfe{\x00"'])
def test_what_another_may_read(body: bytes) -> None:
    """Is told from what nobody reads."""
    with pytest.raises(UnreadableJSON):
        WHOLE.payload(body)


@pytest.mark.slow
def test_log_probabilities() -> None:
    """They are left out where there are very many values, and only there; what is in strings is not meant."""
    few = {"logprobs": {"content": [1]}, "b": 1}
    assert WHOLE.payload(json.dumps(few).encode()) == few
    many = [{"token": "}", "bytes": [1, 2]}] * MOST_VALUES
    told = 'a "logprobs": [ b'
    body = {"a": told, "choices": [{"logprobs": {"content": many}, "c": 1}] * 2, "logprobs": many, "z": told}
    assert WHOLE.payload(json.dumps(body).encode()) == {
        "a": told,
        "choices": [{"logprobs": {}, "c": 1}] * 2,
        "logprobs": [],
        "z": told,
    }
    with pytest.raises(UnreadableJSON):
        WHOLE.payload(json.dumps({"a": many, "logprobs": many}).encode())
    with pytest.raises(NotJSON):
        WHOLE.payload(json.dumps({"logprobs": many}).encode()[:-2])
