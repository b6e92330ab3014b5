"""The search that keeps what has reached something new: it finds more, its folder stays small, and it can be read."""

import random
from pathlib import Path

import pytest

from tests.fuzz import __main__ as program
from tests.fuzz.__main__ import Guided, Search, main
from tests.fuzz.cases import Case, draw_case, simpler
from tests.fuzz.checks import Failure, Result
from tests.fuzz.corpus import Corpus, Damaged, case_of, smaller, text_of, vary
from tests.fuzz.reach import Edge, Reach

MOST_DRAWN = 6
"""Mutations of one body in a case that is drawn."""


def most_mutations(case: Case) -> int:
    """Of the body that has the most."""
    return max(len(part.mutations) for turn in case.turns for part in (turn.request, *turn.replies))


def planted(case: Case, _loop: object = None) -> Result:
    """A check with one fault, in a case that nobody draws; there is a branch on the way to it."""
    count = most_mutations(case)
    if count >= MOST_DRAWN:
        count += 1
    if count > MOST_DRAWN + 2:
        return Result([Failure("planted", "")])
    return Result()


def guided(folder: Path, most: int = 100) -> Guided:
    """A search over what this file does."""
    return Guided(Search(1, own_only=True), Corpus(folder, most), Reach(__file__))


def run(search: Guided, cases: int) -> None:
    """Replay, and look at so many cases."""
    search.reach.start()
    try:
        search.replay()
        for index in range(cases):
            search.look_at(index)
    finally:
        search.reach.stop()
        search.search.loop.drop()


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "check", planted)


@pytest.mark.slow
@pytest.mark.usefixtures("_planted")
def test_a_fault_that_only_a_kept_case_leads_to(tmp_path: Path) -> None:
    """Drawn cases never show it, however many; one that is made from a kept one does, and can be shown again."""
    assert not any(planted(draw_case(1, index, own_only=True)).failures for index in range(300))
    search = guided(tmp_path)
    run(search, 300)
    assert set(search.search.kinds) == {"planted"}
    again, _ = search.search.first["planted"]
    found = case_of(again.removeprefix("--case '").removesuffix("'"))
    assert found is not None
    assert most_mutations(found) > MOST_DRAWN
    assert main(["--case", text_of(found)]) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_planted")
def test_the_next_run_begins_with_what_was_kept(tmp_path: Path) -> None:
    """The fault is there before any case is drawn, and nothing is kept twice."""
    run(guided(tmp_path), 300)
    before = {path.name for path in tmp_path.iterdir()}
    again = guided(tmp_path)
    run(again, 0)
    assert again.search.kinds["planted"]
    assert {path.name for path in tmp_path.iterdir()} <= before
    assert 0 < len(before) < 8


@pytest.mark.usefixtures("_planted")
def test_the_folder_is_bounded(tmp_path: Path) -> None:
    """It has so many files at most; those that reach nothing new are removed."""
    for index in range(40):
        Corpus(tmp_path).keep(draw_case(2, index, own_only=True))
    assert len([*tmp_path.iterdir()]) == 40
    search = guided(tmp_path, most=2)
    run(search, 60)
    assert len([*tmp_path.iterdir()]) == len(search.corpus.cases) <= 2
    assert search.corpus.left_out


def test_a_case_is_read_as_it_was_written() -> None:
    """Of all that can be drawn, and of what is made from it."""
    cases = [draw_case(3, index, own_only=True) for index in range(100)]
    dice = random.Random(1)
    for case in (*cases, *(vary(cases, dice) for _ in range(200))):
        assert case_of(text_of(case)) == case


@pytest.mark.slow
def test_what_is_made_from_a_case_stays_small() -> None:
    """However often it is made again."""
    dice, cases = random.Random(1), [draw_case(3, 5, own_only=True)]
    for _ in range(300):
        cases = [vary(cases, dice)]
        assert len(cases[0].turns) <= 3
        assert len(text_of(cases[0])) < 12_000


def test_a_smaller_case_is_kept() -> None:
    """All is left out that is not needed to reach the same."""
    case = next(case for case in (draw_case(1, at, own_only=True) for at in range(100)) if len(case.turns) == 3)
    edges: set[Edge] = {(1, 2, 3)}
    assert len(smaller(case, edges, lambda one: edges if len(one.turns) > 1 else set()).turns) == 2
    assert smaller(case, edges, lambda _: set()) == case
    tried: list[Case] = []

    def reaches_nothing(one: Case) -> set[Edge]:
        tried.append(one)
        return set()

    smaller(case, edges, reaches_nothing)
    assert len(tried) <= min(20, len(simpler(case)))


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "JSON"), ("{}", "case: Field required"), ('{"case": 1, "materials": {}}', "case"), ("\xff", "utf-8")],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is wrong and what to do, and nothing else is begun."""
    (tmp_path / "one.json").write_bytes(text.encode("latin-1"))
    assert main(["--corpus", str(tmp_path), "--count", "1"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'one.json'} is no case of this fuzzer" in said
    assert why in said
    assert "delete the file" in said


def test_what_does_not_exist_is_damage() -> None:
    """Settings, a damage, a material without its key; material that is not here is none, for it may be elsewhere."""
    case = draw_case(3, 0, own_only=True)
    text = text_of(case)
    material = str(case.turns[0].replies[0].material)
    for damaged in (
        text.replace(f'"configuration":{case.configuration}', '"configuration":100000'),
        text.replace('"kind":null', '"kind":7'),
        text.replace(f'"{material}":', '"99999":'),
        text.replace('"turns":[', '"turns":[],"x":['),
    ):
        assert damaged != text
        with pytest.raises(Damaged):
            case_of(damaged)
    assert case_of(text.replace(f'"{material}":"', f'"{material}":"unknown ')) is None


def test_the_edges_of_a_function() -> None:
    """Another way through it is another edge; the same way is none."""

    def way(number: int) -> str:
        if number:
            return "other"
        return "one"

    reach = Reach(__file__)
    reach.start()
    try:
        found = []
        for number in (0, 1, 1):
            reach.take()
            way(number)
            found.append(reach.take())
        with reach.paused():
            way(1)
        unseen = {edge for edge in reach.take() if edge[0] == id(way.__code__)}
    finally:
        reach.stop()
    assert found[0]
    assert found[1] - found[0]
    assert not found[2] - found[1]
    assert not unseen
