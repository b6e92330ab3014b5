"""Writers of numbered parts: what is written stays readable where an answer's own numbers are not."""

import re

import pytest

from callfuse.dialects.base import Block, Frame
from callfuse.wire import Format
from tests.dialects.test_splicing import begun, frames, splice_all
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.plain import saying

NUMBERED = ("anthropic", "bedrock-converse", "cohere-v2", "gemini-interactions")
every_numbered = pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in NUMBERED], ids=lambda kit: kit.name.split("-")[0]
)
INDEX = re.compile(rb'("(?:contentBlockI|i)ndex": ?)(\d+)')


def numbers(form: Format, out: list[bytes]) -> list[bytes]:
    """The numbers in some frames, as they are written."""
    return [number for frame in out if frame for _, number in INDEX.findall(form.text(frame))]


@every_numbered
def test_an_unreadable_number_is_that_of_the_first_part(kit: DialectKit) -> None:
    """In an answer that goes on with another, an event whose number cannot be read gets the one of its part."""
    writer, form = begun(kit, saying("Let me look."), foreign=False)
    pieces = frames(form, stream_of(kit, saying("Another way.")))
    usual = numbers(form, [writer.splice(piece, form.payload(piece)) for piece in pieces])
    writer, _ = begun(kit, saying("Let me look."), foreign=False)
    broken = [form.with_text(piece, INDEX.sub(rb"\1null", form.text(piece))) for piece in pieces]
    assert numbers(form, [writer.splice(piece, form.payload(piece)) for piece in broken]) == usual
    assert set(usual) == {b"1"}


@every_numbered
def test_a_text_of_callfuse_comes_once(kit: DialectKit) -> None:
    """Before the first of several events that end an answer."""
    writer, form = begun(kit, saying("Let me look."), foreign=False)
    last = frames(form, stream_of(kit, saying("Another way.")))[-4:]
    held = [Frame(raw, form.payload(raw)) for raw in (*last, *last)]
    out = frames(form, writer.thin(held, set(), {0: Block("Stopped.")}))
    assert sum(b"Stopped." in form.text(frame) for frame in out) == 1


@every_numbered
def test_numbers_go_on_from_what_the_client_has(kit: DialectKit) -> None:
    """The blocks of two more answers, and then callfuse's own, follow each other without a gap."""
    writer, form = begun(kit, saying("One.", "Two."), foreign=False)
    found = []
    for _ in range(2):
        out = splice_all(writer, form, stream_of(kit, saying("Three.", "Four.")))
        for frame in filter(None, out):
            writer.note_sent(form.payload(frame) or {})
        found += numbers(form, [*filter(None, out)])
        writer.next_answer(foreign=False)
    found += numbers(form, frames(form, writer.close({0: Block("Stopped.")})))
    assert list(dict.fromkeys(found)) == [b"2", b"3", b"4", b"5", b"6"]
