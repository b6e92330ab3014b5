"""Texts that run away are found, late enough and soon enough; healthy ones never, however they come."""

import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from benchmarks.runaway import GOES_ON, Text, going_on, main
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import runaway
from callfuse.detect.runaway import (
    DOUBT,
    LEAST,
    LEAST_LAPS,
    LOOK,
    WINDOW,
    GrowingText,
    Runaway,
    end_of_first_lap,
    lap_of,
    may_be_data,
)
from tests.detect.runaway_texts import AWAY, EACH, HEALTHY, Away, prose
from tests.support.examples import more_examples
from tests.support.work import lines_run

SENTENCE = "The model says the same again. "
BEFORE = prose(Random(0))


@cache
def healthy_texts() -> dict[str, str]:
    """Every healthy text, by its sort and number."""
    return {f"{sort.__name__} {n}": sort(Random(n)) for sort in HEALTHY for n in range(EACH)}


@cache
def away_texts() -> dict[str, Away]:
    """Every text that runs away, by its sort and number."""
    return {f"{sort.__name__} {n}": sort(Random(n)) for sort in AWAY for n in range(EACH)}


def found_in(text: str) -> Runaway | None:
    """What is found in a whole text."""
    return GrowingText().add(text)


def found_by(pieces: Iterator[str]) -> Runaway | None:
    """What is found in a text that comes in pieces."""
    growing = GrowingText()
    for piece in pieces:
        growing.add(piece)
    return growing.found


def cut(text: str, sizes: list[int]) -> Iterator[str]:
    """A text in pieces of these sizes, again and again."""
    at = 0
    while at < len(text):
        for size in sizes:
            yield text[at : at + size]
            at += size


def test_there_are_enough_texts() -> None:
    """A text that is not there is not judged; nor is a short one."""
    assert len(healthy_texts()) >= 200
    assert len(away_texts()) >= 100
    assert sum(len(text) >= 2 * LEAST for text in healthy_texts().values()) >= 180


def test_healthy_texts_are_left_alone() -> None:
    """None is cut, at whatever length: what is found in no text is found in no beginning of one."""
    assert {name: found for name, text in healthy_texts().items() if (found := found_in(text))} == {}


def test_texts_that_run_away_are_found_in_time() -> None:
    """After as many characters as their sort needs, and the way to the next look."""
    late = {}
    for name, (text, begin, within) in away_texts().items():
        found = found_in(text)
        if not found or not LEAST <= found.end - begin < within + 2 * LOOK:
            late[name] = found
    assert late == {}


@more_examples(5)
@given(st.data())
def test_the_cut_does_not_matter(data: st.DataObject) -> None:
    """The same is found at the same place, whatever the pieces, empty ones included."""
    texts = [*healthy_texts().values(), *(text for text, _, _ in away_texts().values())]
    text = data.draw(st.sampled_from(texts))[: data.draw(st.integers(0, 40_000))]
    sizes = data.draw(st.lists(st.integers(0, 3 * LOOK), min_size=1, max_size=8).filter(lambda them: sum(them) > 100))
    assert found_by(cut(text, sizes)) == found_in(text)


@pytest.mark.parametrize("size", [1, 4, LOOK - 1, LOOK, LOOK + 1])
def test_every_piece_alike(size: int) -> None:
    """Single characters, and pieces about as long as the way between two looks."""
    text = BEFORE[:5_000] + SENTENCE * 300
    assert found_by(cut(text, [size])) == found_in(text) is not None


def test_nothing_is_found_before_the_next_look() -> None:
    """A caller may keep pieces until so many characters have come, and add them as one."""
    text, growing, at = SENTENCE * 300, GrowingText(), 0
    while growing.found is None:
        assert 0 < growing.missing <= LOOK
        end = at + growing.missing
        assert growing.add(text[at : end - 1]) is None
        growing.add(text[end - 1])
        at = end
    assert growing.found == found_in(text)
    assert at == growing.found.end


@more_examples(5)
@given(st.data())
def test_a_beginning_is_judged_by_itself(data: st.DataObject) -> None:
    """What is found is found as soon as the text is there up to its end, and not before."""
    text, begin, _ = data.draw(st.sampled_from(list(away_texts().values())))
    found = found_in(text)
    assert found
    length = data.draw(st.integers(0, len(text)))
    assert found_in(text[:length]) == (found if length >= found.end else None)
    assert found_in(text[: begin + LEAST - 1]) is None


@pytest.mark.parametrize("text", [BEFORE * 20, "?!" * 100_000, "".join(f"row {n} of it\n" for n in range(20_000))])
def test_work_grows_with_the_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character is looked at twice at most, and however it is cut."""
    looked_at = 0

    def counted(window: str) -> runaway.Lap | None:
        nonlocal looked_at
        looked_at += len(window)
        return lap_of(window)

    monkeypatch.setattr(runaway, "lap_of", counted)
    found_by(cut(text, [7]))
    assert 0 < looked_at <= WINDOW // LOOK * len(text)


@pytest.mark.parametrize(
    "window",
    [
        "a" * WINDOW,
        "a" * (WINDOW - 1) + "b",
        "a" * LOOK + "b" + "a" * (LOOK - 1),
        "ab" * (LOOK // 2) + "ba" * (LOOK // 2),
        "1" * (WINDOW - 1) + "2",
        "0 " * (LOOK - 1) + "1 ",
        "\\" * WINDOW,
        "\\" * (WINDOW - 1) + "x",
        " " * (WINDOW - 1) + "x",
        "\ud800" * WINDOW,
        ("\ud800 1\0" * WINDOW)[:WINDOW],
        "".join(chr(0x4E00 + n) for n in range(WINDOW)),
    ],
    ids=repr,
)
def test_a_look_has_a_bound(window: str) -> None:
    """Whatever a model sends: nothing raises, and Python's part of the work is small."""
    assert lines_run(lambda: lap_of(window)) <= 3 * WINDOW
    may_be_data(window[:LOOK])


@pytest.mark.parametrize("text", [BEFORE, " ", "?!", SENTENCE])
def test_what_is_kept_has_a_bound(text: str) -> None:
    """The tail, and what has come since; nothing once it is known to run away."""
    growing = GrowingText()
    for piece in cut(text * (100_000 // len(text)), [9]):
        growing.add(piece)
        kept = [getattr(growing, name) for name in GrowingText.__slots__]
        size = sum(len(value) for value in kept if isinstance(value, str))
        size += sum(map(len, next(value for value in kept if isinstance(value, list))))
        assert size <= (WINDOW if growing.found is None else 0)


def test_empty_pieces_are_not_kept() -> None:
    """A vendor may send any number of them."""
    growing = GrowingText()
    for _ in range(10):
        growing.add("")
    assert growing.missing == LOOK
    assert [len(value) for name in GrowingText.__slots__ if isinstance(value := getattr(growing, name), list)] == [0]


def repeated(unit: str, length: int) -> str:
    """A unit again and again, up to a length that looks come to."""
    return (unit * (length // len(unit) + 1))[:length]


@pytest.mark.parametrize(
    ("unit", "length"),
    [
        (SENTENCE, LEAST),
        ("x" + BEFORE[: LOOK - 1], LEAST_LAPS * LOOK),
        (BEFORE[:1_000], 3 * LOOK),
        ("=", LEAST * DOUBT),
        ("0, ", LEAST * DOUBT),
        (" ", LEAST),
        ("\\n", LEAST),
    ],
)
def test_limits(unit: str, length: int) -> None:
    """A repetition is too long from its limit on, at the next look, and never one look earlier."""
    found = found_in(repeated(unit, length))
    assert found is not None
    assert (found.begin, found.end, found.exact) == (0, length, True)
    assert sorted(found.unit) == sorted(unit)
    assert found.laps == length // len(unit)
    assert found_in(repeated(unit, length - 1)) is None


def test_a_unit_may_not_be_longer_than_a_look() -> None:
    """What repeats at a greater distance is not seen."""
    assert found_in(repeated(BEFORE[: LOOK + 1], 100_000)) is None


def test_a_repetition_that_ends_is_forgotten() -> None:
    """Two that are too short by themselves are no long one."""
    once = repeated(SENTENCE, 3_500)
    assert found_in((BEFORE[:3_000] + once) * 10) is None
    assert found_in("".join(repeated(f"{SENTENCE}{what} ", 3_500) for what in ("So", "Thus", "Hence"))) is None


def test_a_new_unit_begins_anew() -> None:
    """What two windows share may go on from laps of one length to laps of another."""
    ends = ("0123456789" * 6)[:58]
    text = ends + BEFORE[: LOOK - 2 * len(ends)] + ends
    assert (text[2_000:], text[1_990:]) == (text[:48], text[:58])
    for _ in range(LOOK):
        text = text[1_999] + text
    while len(text) < 20_000:
        text += text[-1_990]
    found = found_in(text)
    assert found is not None
    assert (found.begin, found.end, found.exact) == (LOOK, 6 * LOOK, True)


def test_an_edit_begins_exact_laps_anew() -> None:
    """Laps are near where one was edited; those behind it count as exact by themselves."""
    unit = "".join(f"{line}\n" for line in BEFORE.splitlines()[:26])
    text = unit * 3 + unit.replace(" the ", " the the ", 1) + unit * 30
    found = found_in(text)
    assert WINDOW < 3 * len(unit) < 3 * LOOK
    assert found is not None
    assert found.exact
    assert found.begin >= 3 * len(unit)


@pytest.mark.parametrize(
    ("unit", "is_data"),
    [
        ("=", True),
        ("?!", True),
        ("0, 1, 0, 17, ", True),
        ("null, ", True),
        ("[0.5, 1e-3, null],\\n", True),
        ("ull, null], [null, n", True),
        ("0x00, 0xff, ", True),
        ("gP8gQID/IECA/yBA", True),
        ("\\n".join(("gP8gQID/IECA/yBA" * 6)[at : at + 76] for at in (0, 12, 8, 4)) + "\\n", True),
        ("AAAAAI4A\\r\\nAAAAAD9E\\r\\nAAAAABgA\\r\\nHJYAAAAA\\r\\n", True),
        ("ha ha, ", True),
        (" ", False),
        ("\\n", False),
        ("\\\\t\\\\n", False),
        ("Wait, no, ", True),
        ("Wait, that is wrong. ", False),
        ("odel says the m", False),
        ("我不知道", False),
    ],
)
def test_units_that_may_be_data(unit: str, *, is_data: bool) -> None:
    """Few words, wherever the unit is cut; white space is none."""
    assert may_be_data(unit) is is_data


def numbered(line: str, first: int = 0) -> str:
    """A window of lines with a number that counts."""
    return "".join(line.format(n) for n in range(first, first + WINDOW))[:WINDOW]


def shuffled(text: str, seed: int) -> str:
    """The words of a text in another order."""
    them = text.split()
    Random(seed).shuffle(them)
    return " ".join(them)


@pytest.mark.parametrize(
    ("window", "exact"),
    [
        (repeated(SENTENCE, WINDOW), True),
        (numbered("step {0} of {0}\n"), False),
        (numbered("step {0} of {0}\n", 95), False),
        (numbered("step -{0} of 7\n"), False),
        ("".join(f"at {n // 60:02}:{n % 60:02} it waits\n" for n in range(999))[:WINDOW], False),
        ("".join(Random(0).choices(" \n\t", k=WINDOW)), True),
        (("n" + "\\n\\n \\t" * WINDOW)[:WINDOW], True),
        (BEFORE[:WINDOW], None),
        (BEFORE[:1_500] * 2 + BEFORE[1_500:2_596], None),
        ("".join(f"step {Random(n).randint(0, 999)} of it\n" for n in range(999))[:WINDOW], None),
        (repeated(SENTENCE, WINDOW - 1) + "#", False),
        ("".join(f"{BEFORE[:400]} {shuffled(BEFORE[400:600], n)}\n" for n in range(9))[:WINDOW], None),
        ("".join(f"field {n % 128}: {Random(n).randint(0, 9)};{' ' * 30}"[:16] for n in range(256)), None),
    ],
)
def test_laps_of_a_window(window: str, *, exact: bool | None) -> None:
    """Exact laps, those with numbers that count, those with small edits; none of random numbers."""
    lap = lap_of(window)
    assert (lap and lap.exact) == exact


def test_the_first_lap_is_kept() -> None:
    """It ends where the text begins to bring nothing new, wherever it was looked at."""
    for length in (0, 1, 1_000, LOOK, 7_777):
        text = BEFORE[:length] + "#" + SENTENCE * 500
        found = found_in(text)
        assert found
        assert text[: end_of_first_lap(text, found)] == BEFORE[:length] + "#" + SENTENCE


def test_the_first_of_laps_that_differ_ends_with_a_line() -> None:
    """They have no beginning that could be told exactly."""
    text = BEFORE[:3_000] + "".join(f"Step {n}: check the queue\n" for n in range(3_000))
    found = found_in(text)
    assert found
    assert not found.exact
    end = end_of_first_lap(text, found)
    assert text[:end].endswith("queue\n")
    assert 3_000 < end < 3_000 + 2 * LOOK
    text = text.replace("\n", ", ")
    found = found_in(text)
    assert found
    assert end_of_first_lap(text, found) == found.begin + len(found.unit)


@pytest.mark.parametrize(
    ("tail", "gone_on"),
    [
        ("ab ab ab ab\n", "ab ab ab ab ab ab"),
        (" \n ", " \n  \n  \n "),
        ("a 8 of 10; a 9 of 20; a 1", "a 8 of 10; a 9 of 20; a 10 of 30; a 11 of 40; a"),
        ("step 3, step 2, step", "step 3, step 2, step 1, step 0, step 1"),
    ],
)
def test_recorded_texts_go_on(tail: str, gone_on: str) -> None:
    """For the figures, a text that was cut goes on as it was going."""
    text = going_on(Text("", f"Well. {tail}", 6)).text
    assert len(text) > GOES_ON
    assert text.startswith(f"Well. {gone_on}")


def test_figures_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of texts, arguments and files: how many there are, what is found, and after how many characters."""
    texts, runs, files = tmp_path / "texts.xz", tmp_path / "runs", tmp_path / "files"
    runs.mkdir()
    files.mkdir()
    with lzma.open(texts, "wt") as lines:
        for text, label in ((BEFORE + SENTENCE * 9, "runaway"), (BEFORE, "healthy")):
            print(json.dumps({"id": "it", "text": text, "label": label, "from": len(BEFORE)}), file=lines)
    with lzma.open(runs / "one.jsonl.xz", "wt") as lines:
        calls = [{"name": "write", "arguments": {"content": SENTENCE * 300}}, {"name": "look", "arguments": "{}"}]
        print(json.dumps({"id": "run", "calls": calls}), file=lines)
    (files / "one.txt").write_text(BEFORE)
    main(["--texts", str(texts), "--runs", str(runs), "--files", str(files)])
    out = capsys.readouterr().out
    rows = {line[:44].strip(): line[44:].split() for line in out.splitlines()}
    assert rows["run away, as recorded"][:2] == ["1", "0.00"]
    assert rows["run away, go on"][:2] == ["1", "100.00"]
    assert rows["healthy, recorded answers"][:2] == ["1", "0.00"]
    assert rows["healthy, recorded arguments"][:2] == ["2", "50.00"]
    assert rows["healthy, files"][:2] == ["1", "0.00"]
    assert "run, write: 132 laps exactly of" in out
