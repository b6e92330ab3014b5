"""The tables of `benchmarks.quality` say what the figures of a replay say. Nothing is measured here."""

import json
from math import sqrt
from pathlib import Path

import pytest
from benchmarks import quality
from benchmarks.quality import (
    BEGIN,
    COLUMNS,
    END,
    FRESH,
    SHIPPED,
    SOURCES,
    Share,
    groups_of,
    line,
    main,
    markdown,
    measured,
    put,
    switched_on,
)

from callfuse.detect.registry import KINDS
from callfuse.offline.replay import ANY, Figures
from callfuse.policy.settings import LoopSettings
from tests.offline.reading import written

HEADS = {column.on_page: at for at, column in enumerate([one for one in COLUMNS if one.on_page])}


def call(argument: str, result: str, *, failed: bool = False) -> dict[str, object]:
    """A call of one tool."""
    return {"name": "look", "arguments": json.dumps({"q": argument}), "result": result, "is_error": failed}


LOOP = [call("a", "nothing")] * 4
HARD = [call("a", "nothing")] * 6
ONE_ERROR = [call(letter, "no such table", failed=True) for letter in "abcd"]
SAME_RESULT = [call(letter, "all is well") for letter in "abcdefg"]
QUIET = [call("a", "x"), call("a", "x"), call("b", "y")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs of two known sources, of one that nobody knows, and of one without outcomes."""
    runs = [
        ("tau_bench", True, LOOP),
        ("tau_bench", True, QUIET),
        ("tau_bench", True, QUIET),
        ("tau_bench", False, ONE_ERROR),
        ("livemcp", False, HARD),
        ("livemcp", True, QUIET),
        ("ours", False, SAME_RESULT),
        ("unlabelled", None, LOOP),
    ]
    written(tmp_path / "runs.jsonl", *({"source": name, "success": ok, "calls": calls} for name, ok, calls in runs))
    return tmp_path


def rows_below(tables: str, title: str) -> dict[tuple[str, str], list[str]]:
    """The rows of one table without its names, by the first two cells."""
    section = tables.partition(f"### {title}\n")[2].partition("\n### ")[0]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines() if row[:1] == "|"]
    return {(row[0], row[1]): row[-len(HEADS) :] for row in cells[2:]}


def test_columns_take_their_numbers_from_the_figures(folder: Path) -> None:
    """Warned of and acted on are told apart; hard ones, saved calls and held ones are those of the figures."""
    figures = measured(folder, LoopSettings())[SHIPPED]["tau_bench"]
    fired = figures.fired[ANY]
    assert (fired.runs, fired.acting_runs) == ({True: 1, False: 1}, {True: 1}), "the error is only warned of"
    tables = markdown(measured(folder, LoopSettings()))
    [row] = [cells for (name, _), cells in rows_below(tables, "Each source").items() if name == "`tau_bench`"]
    assert row[HEADS["good runs"]] == "3"
    assert row[HEADS["failed runs"]] == "1"
    assert row[HEADS["found in good, %"]] == Share(1, 3).markdown()
    assert row[HEADS["found in failed, %"]] == Share(1, 1).markdown()
    assert row[HEADS["acts in good, %"]] == Share(1, 3).markdown()
    assert row[HEADS["acts in failed, %"]] == Share(0, 1).markdown()
    assert row[HEADS["hard, good/failed"]] == "0/0"
    assert row[HEADS["calls saved, %"]] == f"{100 * fired.saved_calls / figures.calls[False]:.2f}"
    assert row[HEADS["quiet calls held, %"]] == f"{100 * figures.quiet_held / figures.quiet:.3f}"
    [row] = [cells for (name, _), cells in rows_below(tables, "Each source").items() if name == "`livemcp`"]
    assert row[HEADS["hard, good/failed"]] == "0/1"
    assert row[HEADS["acts in failed, %"]] == Share(1, 1).markdown()
    assert row[HEADS["calls saved, %"]] == f"{100 * 4 / 6:.2f}"


def test_groups_and_kinds_have_their_rows(folder: Path) -> None:
    """Groups in their order with all fresh ones after the last of these; a kind where it fired, the opt-in ones too."""
    tables = markdown(measured(folder, LoopSettings()))
    section = tables.partition("### Together\n")[2].partition("\n### ")[0]
    assert [row.split("|")[1].strip() for row in section.strip().splitlines()[2:]] == [
        "modern",
        "newest",
        "all fresh",
        "ours",
    ]
    kinds = rows_below(tables, "Each kind alone")
    assert ("`repeat`", "modern") in kinds
    assert ("`same_error`", "modern") in kinds
    assert ("`same_error`", "newest") not in kinds
    assert ("`stagnation`", "ours") in kinds
    assert "unlabelled" not in tables


def test_sources_are_known() -> None:
    """Those of the fresh groups are named, and every source says how old its models are."""
    assert set(FRESH) <= {source.group for source in SOURCES.values()}
    assert all(source.year[:2] == "20" and source.models for source in SOURCES.values())
    figures = {name: Figures() for name in ("livemcp", "ours")}
    figures["ours"].runs[True] = 1
    assert groups_of(figures) == {"ours": ["ours"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_runs_alone_at_a_limit(kind: str) -> None:
    """What is off by default is measured at its default limit; what is on keeps what the settings say."""
    settings, limit = LoopSettings(), KINDS[kind].limit
    alone = switched_on(settings, kind)
    if limit is not None:
        assert alone.limit_of(kind) == limit.default
    others = [name for name, one in KINDS.items() if one.limit is not None and name != kind]
    assert [alone.limit_of(name) for name in others] == [settings.limit_of(name) for name in others]


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (21, 1627, 0.0085, 0.0197),
    ],
)
def test_intervals(part: int, whole: int, low: float, high: float) -> None:
    """Known values, and the ends solve the equation that defines them: the share is 1.96 standard errors away."""
    found = Share(part, whole).interval()
    assert found == pytest.approx((low, high), abs=5e-5)
    for end in found if whole else ():
        if 0 < end < 1:
            assert abs(part / whole - end) == pytest.approx(1.959964 * sqrt(end * (1 - end) / whole))


def test_shares_are_written_with_their_interval() -> None:
    """The page has the count as well; of nothing there is no share."""
    assert Share(21, 1627).text() == "1.29 (0.85-1.97)"
    assert Share(21, 1627).markdown() == "21: 1.29 (0.85-1.97)"
    assert (Share(0, 0).text(), Share(0, 0).markdown()) == ("-", "-")


def test_the_terminal_has_every_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Heads stand over their numbers."""
    main([str(folder)])
    shown = capsys.readouterr().out.splitlines()
    [head, *_] = [text for text in shown if "found good" in text]
    [row] = [text for text in shown if text.startswith("livemcp")]
    assert len(head) == len(row) == len(line("livemcp", Figures()))
    at = head.index("hard") + len("hard")
    assert row[:at].endswith(" 0/1")


def test_the_page_s_tables_are_replaced(folder: Path, tmp_path: Path) -> None:
    """What stands around them stays, and a page without markers is an error."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    main([str(folder), "--write", str(page)])
    written_once = page.read_text()
    assert written_once.startswith(f"before\n{BEGIN}\n\n### Together\n")
    assert written_once.endswith(f"|\n\n{END}\nafter\n")
    assert "old" not in written_once
    main([str(folder), "--write", str(page)])
    assert page.read_text() == written_once
    with pytest.raises(ValueError, match="two lines"):
        put("no markers", "tables")


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Said, and no error: the runs are not part of the project."""
    main(["nowhere/at/all"])
    assert "no recorded runs" in capsys.readouterr().out
    assert quality.DEFAULT_FOLDER.name == "trajectories"
