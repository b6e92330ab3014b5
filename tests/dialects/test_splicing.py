"""Another answer as the continuation of a client's stream: the same bytes, whether each frame is walked through or not.

`FrameEditor` edits a frame that is like the one before at known places. Here each dialect's writer writes every answer
twice, once with an editor that always walks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects import dialect_of
from callfuse.dialects.base import Writer
from callfuse.wire import EVENTS, Format, jsontext
from callfuse.wire.editor import FrameEditor
from tests.support.kits import DialectKit, stream_of, target_of
from tests.support.meeting import every_dialect
from tests.support.model import Answer, Quirks
from tests.support.plain import saying, spin
from tests.support.streams import answers, fresh

MEDIA_TYPES = (
    b"text/event-stream",
    b"application/x-ndjson",
    b"application/vnd.amazon.eventstream",
    b"application/json",
)


def begun(kit: DialectKit, first: Answer, *, foreign: bool) -> tuple[Writer, Format]:
    """A writer whose client has had an answer, and which is to continue it; and the format of the stream."""
    path, query = target_of(kit, stream=True)
    dialect = dialect_of(path)
    assert dialect is not None
    body = kit.request(spin(), stream=True)
    request = dialect.read_request(body, jsontext.loads(body), f"{path}?{query.decode()}" if query else path)
    assert request is not None
    form = next(filter(None, (dialect.stream_format(kind, asked=True) for kind in MEDIA_TYPES)), EVENTS)
    writer = request.writer(usage="last", form=form)
    for frame in frames(form, stream_of(kit, first)):
        if (payload := form.payload(frame)) is not None:
            writer.note_sent(payload)
    writer.before_asking([], set())
    writer.next_answer(foreign=foreign)
    return writer, form


def frames(form: Format, stream: bytes) -> list[bytes]:
    """A stream in frames."""
    framer = form.framer()
    return [*framer.feed(stream), *filter(None, (framer.flush(),))]


def splice_all(writer: Writer, form: Format, stream: bytes) -> list[bytes]:
    """Each frame of another answer as the client gets it."""
    return [writer.splice(frame, form.payload(frame)) for frame in frames(form, stream)]


@contextmanager
def walking() -> Iterator[None]:
    """Within, every frame is walked through."""
    with patch.object(FrameEditor, "apply", lambda _editor, text, edits: jsontext.apply(text, edits)):
        yield


@every_dialect
@given(data=st.data())
def test_a_spliced_answer_has_the_bytes_of_a_walk(kit: DialectKit, data: st.DataObject) -> None:
    """Of any answer, in any vendor's habits, in many pieces and in few, of the same model and of another."""
    first = data.draw(answers(kit, many=False, plain=True))
    second = data.draw(answers(kit, [fresh(0), fresh(1)], many=False, tag="second"))
    foreign = data.draw(st.booleans())
    stream = stream_of(kit, second)
    writer, form = begun(kit, first, foreign=foreign)
    out = splice_all(writer, form, stream)
    with walking():
        writer, form = begun(kit, first, foreign=foreign)
        assert out == splice_all(writer, form, stream)


def long_answer(kit: DialectKit, pieces: int) -> bytes:
    """An answer in so many pieces of text, behind a first answer's one text."""
    text: Any = saying("Another way.").choices[0][0]
    said = type(text)(tuple(f"piece {at} \\ \"'" for at in range(pieces)))
    return stream_of(kit, Answer(((said,),), Quirks(), usage=False, tag="second"))


@every_dialect
def test_a_long_spliced_answer_is_walked_through_as_often_as_a_short_one(kit: DialectKit) -> None:
    """The first frames of an envelope are walked through, however many pieces follow in it."""

    def walks(pieces: int) -> int:
        writer, form = begun(kit, saying("Let me look."), foreign=False)
        with patch("callfuse.wire.editor.apply", wraps=jsontext.apply) as apply:
            splice_all(writer, form, long_answer(kit, pieces))
        return apply.call_count

    assert walks(40) == walks(20) < 20
