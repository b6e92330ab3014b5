"""What is left of a text that runs away, wherever it was looked at from."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse.detect.kind import REASONING, TEXT
from callfuse.detect.runaway import GrowingText
from callfuse.dialects.said import SaidPiece
from callfuse.guard.cut_text import said_before, without_repetition
from callfuse.guard.growing_texts import FoundText

BEGIN = "First the onions, then the flour: it takes a while, and nobody should hurry:"
LAP = "Stir it until it is thick. "
TEXT_OF_ALL = BEGIN + LAP * 400


def found(text: str, part: str = TEXT, place: object = 0) -> FoundText:
    """What is found in a text."""
    runaway = GrowingText().add(text)
    assert runaway is not None
    return FoundText(part, runaway, place)


def said(payload: Any) -> Iterator[SaidPiece]:
    """Pieces as they stand in a payload."""
    for part, place, piece in payload["said"]:
        yield SaidPiece(part, place, piece)


def payloads(*texts: tuple[str, object, str]) -> list[dict[str, Any]]:
    """An answer that says these texts, in pieces."""
    return [
        {"said": [(part, place, text[at : at + 30])]} for part, place, text in texts for at in range(0, len(text), 30)
    ]


@pytest.mark.parametrize("unread", [0, 50, 1_000, 5_001])
def test_it_ends_with_the_first_lap(unread: int) -> None:
    """Also where the text was not looked at from its beginning."""
    of_all = payloads((TEXT, 0, TEXT_OF_ALL))
    assert said_before(found(TEXT_OF_ALL[unread:]), of_all, said) == BEGIN + LAP


@pytest.mark.parametrize("laps", [300, 400])
def test_laps_that_count(laps: int) -> None:
    """End with a line, at one of the first."""
    text = BEGIN + "".join(f"\nStep {at}: stir the sauce until it is thick enough." for at in range(laps * 2))
    kept = said_before(found(text), payloads((TEXT, 0, text)), said)
    assert kept.startswith(BEGIN)
    assert kept.endswith(("\n", "."))
    assert len(kept) < len(text) / 2


def test_other_texts_stay_and_reasoning_is_left_out() -> None:
    """Of an answer of several blocks, also where they were numbered otherwise."""
    answer = payloads((REASONING, 0, "Hm. " * 9), (TEXT, 1, "Listen."), (TEXT, 2, TEXT_OF_ALL))
    for place in (2, 7):
        assert said_before(found(TEXT_OF_ALL, place=place), answer, said) == f"Listen.\n\n{BEGIN}{LAP}"
    answer = payloads((TEXT, 1, "Listen."), (REASONING, 2, TEXT_OF_ALL))
    assert said_before(found(TEXT_OF_ALL, REASONING, 2), answer, said) == "Listen."
    assert said_before(found(TEXT_OF_ALL, REASONING), payloads((REASONING, 0, TEXT_OF_ALL)), said) == ""


def test_a_whole_answer_keeps_all_other_bytes() -> None:
    """White space and numbers as they came; a text in parts ends within one of them."""

    def of_body(payload: Any) -> Iterator[SaidPiece]:
        for text in payload["texts"]:
            yield SaidPiece(TEXT, 0, text)

    one = found(TEXT_OF_ALL)
    body = b'{"n": 1.50,  "texts": [%b], "id": "x"}'
    assert without_repetition(one, body % json.dumps(TEXT_OF_ALL).encode(), of_body) == body % (
        json.dumps(BEGIN + LAP).encode()
    )
    halves = [BEGIN[:20], TEXT_OF_ALL[20:]]
    cut = json.loads(without_repetition(one, json.dumps({"texts": halves}).encode(), of_body))
    assert cut == {"texts": [BEGIN[:20], (BEGIN + LAP)[20:]]}
    reasoning = one._replace(part=REASONING)
    assert without_repetition(reasoning, body % b'"a"', of_body) == body % b'"a"'
