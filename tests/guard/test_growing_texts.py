"""Text and reasoning, looked at while they grow: which of them, from where on, and how many are told."""

from callfuse.detect.kind import REASONING, TEXT
from callfuse.dialects.said import SaidPiece
from callfuse.guard.growing_texts import MOST, UNREAD, FoundText, GrowingTexts
from callfuse.policy.settings import LoopSettings

LAP = "Stir it until it is thick. "


def growing(**runaway: object) -> GrowingTexts:
    """The texts of a new answer, under these settings."""
    return GrowingTexts(LoopSettings.model_validate({"detectors": {"runaway": runaway}}))


def feed(texts: GrowingTexts, part: str, place: object, text: str, step: int = 100) -> None:
    """Add a text in pieces."""
    for at in range(0, len(text), step):
        texts.read([SaidPiece(part, place, text[at : at + step])])


def test_each_text_by_itself() -> None:
    """By turns, two that repeat nothing alone are not found; one that does is found once."""
    texts = growing()
    for at in range(600):
        texts.read(
            [
                SaidPiece(TEXT, 0, LAP),
                SaidPiece(REASONING, 0, f"{at * at} and {at**3 % 997}: "),
            ]
        )
    [(part, found, _)] = texts.take()
    assert part == TEXT
    assert found.unit in 2 * LAP
    assert texts.take() == []


def test_what_is_off_is_not_found() -> None:
    """And where all is off, a frame is read only when the room is used up."""
    texts = growing(text="off")
    feed(texts, TEXT, 0, LAP * 400)
    assert texts.take() == []
    feed(texts, REASONING, 0, LAP * 400)
    assert [one.part for one in texts.take()] == [REASONING]
    texts = growing(text="off", reasoning="off")
    texts.room = -1
    feed(texts, REASONING, 0, LAP * 400)
    assert texts.take() == []
    assert texts.room == UNREAD


def test_only_the_newest_texts_are_looked_at_and_few_are_told() -> None:
    """So that memory is bounded however many parts an answer has."""
    texts = growing()
    texts.read([SaidPiece(TEXT, place, LAP * 50) for place in range(3 * MOST)])
    texts.read([SaidPiece(TEXT, 0, LAP * 100)])
    assert texts.take() == []
    for place in range(3 * MOST):
        texts.read([SaidPiece(TEXT, place, LAP * 400)])
    found = texts.take()
    assert len(found) == MOST
    assert all(isinstance(one, FoundText) for one in found)


def test_room() -> None:
    """A whole answer is read if it is as long as what could be found."""
    assert growing().room == UNREAD
    assert GrowingTexts(LoopSettings(), whole=True).room == 4096
    assert GrowingTexts(LoopSettings(max_response_bytes=2000)).room == 2000
