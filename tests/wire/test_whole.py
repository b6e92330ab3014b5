"""A whole body as one frame: it is there when the body ends, in any cutting, and its integers keep their digits."""

import pytest

from callfuse.wire import WHOLE
from callfuse.wire.jsontext import NotJSON
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
