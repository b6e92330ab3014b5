"""Reports say what was counted, whoever reads them, and nothing in a record can steer the reader's program."""

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from callfuse.model import PastCall, Result, Round, ToolCall
from callfuse.observe.pages import page_of
from callfuse.offline.excerpts import LONGEST, MAX_CELLS, short
from callfuse.offline.replay import ANY
from callfuse.offline.report_data import ALL, NOTES, as_csv, as_json, table
from callfuse.offline.report_page import as_html
from callfuse.offline.report_text import report_replay
from callfuse.offline.runs import RecordedRun, Unreadable
from callfuse.policy.settings import MODES, LoopSettings
from tests.offline.test_judging import run_of
from tests.offline.test_replay import THREE, replayed

HOSTILE = '"><img src=x onerror=alert(1)>\x1b[31m[red]\u202e$rows\x00</b>\ud800'
"""What a model, or whoever wrote the log, could put into a name."""


def hostile_run() -> RecordedRun:
    """A run whose every text is hostile."""
    calls = [PastCall(ToolCall(HOSTILE, HOSTILE, HOSTILE), Result(HOSTILE)) for _ in range(4)]
    return RecordedRun(HOSTILE, HOSTILE, HOSTILE, False, [[Round((call,), at) for at, call in enumerate(calls)]])


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def cells(self) -> list[dict[str, str | None]]:
        """The cells of the pictures; those of the key have no title."""
        return [attributes for tag, attributes in self.elements if tag == "b" and "title" in attributes]


def printed(replay: Any, width: int = 200) -> str:
    """The report as a pipe gets it."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    for part in report_replay(replay, width):
        console.print(part)
    return out.getvalue()


def test_the_table() -> None:
    """A row for each source and rule, and for all sources together."""
    other = run_of([["a"]], success=True)
    other = RecordedRun(other.id, "t", other.model, other.success, other.turns)
    texts = table(replayed([run_of(THREE, success=False), run_of([["a"]], success=False), other]))
    rows = [dict(zip(texts.headings, cells, strict=True)) for cells in texts.rows]
    assert [(row["source"], row["rule"]) for row in rows] == [
        ("s", ANY), ("", "repeat"), ("t", ANY), (ALL, ANY), ("", "repeat"),
    ]  # fmt: skip
    assert (rows[0]["failed runs"], rows[0]["fired failed"], rows[0]["calls saved"]) == ("2", "1 (50.0%)", "1 (25.0%)")
    assert (rows[2]["ok runs"], rows[2]["fired ok"], rows[2]["fired failed"]) == ("1", "0 (0.0%)", "-")
    assert [at in texts.marked for at in range(5)] == [True, False, True, True, False]


def test_columns_are_those_of_outcomes_that_there_are() -> None:
    """Unlabelled logs have neither successes nor failures, and nothing is claimed of them."""
    texts = table(replayed([run_of(THREE)]))
    assert texts.headings == ["source", "rule", "unknown runs", "fired unknown", "soft", "hard"]
    assert texts.rows[0] == ["s", ANY, "1", "1 (100.0%)", "1", "0"]
    assert table(replayed([])).rows == []


def test_the_report_in_a_pipe() -> None:
    """Figures and findings as plain lines, no escape codes, nothing cut."""
    text = printed(replayed([run_of(THREE, success=False)]))
    assert "\x1b" not in text
    assert "repeat 3 of look (soft, from 3): steer" in text
    marked = [line for line in text.splitlines() if line.lstrip().startswith(">")]
    assert marked == ['  >    3 2a  look "a"  -> a']


def test_a_narrow_terminal_gets_shares() -> None:
    """Eighty columns are enough for the table."""
    lines = printed(replayed([run_of(THREE, success=False)]), 80).splitlines()
    row = next(line for line in lines if line.startswith("s "))
    assert row.split() == ["s", "any", "rule", "1", "100.0%", "1", "0", "33.3%", "33.3%"]


@pytest.mark.parametrize("width", [20, 40, 60, 70, 80, 90, 100, 120, 149, 150, 160, 200])
def test_no_figure_is_cut(width: int) -> None:
    """Where there is no room, headings go over two lines, then names of sources are cut; at last it is a list."""
    runs = [run_of(THREE, success=success) for success in (True, False, None)]
    lines = printed(replayed([replace(run, source="a-source-of-some-length") for run in runs]), width).splitlines()
    figures = lines[: lines.index(next(line for line in lines if line.startswith("ok, failed")))]
    assert all(len(line.rstrip()) <= width for line in figures)
    everything = " ".join(figures)
    assert everything.count("100.0%") == 6
    assert everything.count("33.3%") == 4


def test_json_and_csv_have_the_same_figures() -> None:
    """Numbers, not texts, for programs."""
    replay = replayed([run_of(THREE, success=False), Unreadable("f", 1, "bad")])
    whole = json.loads(as_json(replay))
    rows = list(csv.DictReader(io.StringIO(as_csv(replay).decode())))
    assert [{key: str(value) for key, value in row.items()} for row in whole["rows"]] == rows
    assert {row["rule"]: row["fired_failed"] for row in whole["rows"]} == {ANY: 1, "repeat": 1}
    assert whole["tool_call_loop"]["max_repeats"] == 3
    assert whole["findings"][0]["calls"][2] == {
        "number": 3, "id": "2a", "tool": "look", "arguments": '"a"', "result": "a", "found": True, "differs": "",
        "begins_turn": False,
    }  # fmt: skip
    assert whole["faults"] == {"count": 1, "first": [{"file": "f", "line": 1, "what": "bad"}]}
    assert whole["held"][0]["suspect"] == 1


def test_json_tells_run_by_run() -> None:
    """What was found in each run that has something, what acts, and from which call on; nothing of arguments."""
    runs = [run_of(THREE, success=False), run_of([["a"], ["b"]], success=True), run_of(THREE, THREE * 2, success=None)]
    first, second = json.loads(as_json(replayed(runs, keep_runs=True)))["runs"]
    assert {key: first[key] for key in ("run", "source", "success", "acts_from")} == {
        "run": "r", "source": "s", "success": False, "acts_from": 3,
    }  # fmt: skip
    assert first["findings"] == [
        {
            "call": 3,
            "turn": 0,
            "round": 2,
            "id": "2a",
            "tool": "look",
            "kinds": ["repeat"],
            "count": 3,
            "threshold": 3,
            "hard": False,
            "rung": "steer",
            "acts": True,
        }
    ]
    assert (second["calls"], len(second["findings"]), second["acts_from"]) == (9, 5, 3)
    watching = replayed(runs, LoopSettings(mode=MODES["observe"]), keep_runs=True)
    assert [run["acts_from"] for run in json.loads(as_json(watching))["runs"]] == [None, None]
    assert not json.loads(as_json(replayed(runs)))["runs"]


def test_the_page_draws_each_call() -> None:
    """A cell a call: the same call in the same colour, what was found marked with its count, turns and rounds apart."""
    page = Page(as_html(replayed([run_of([["a", "b"], ["c"], ["c"], ["c"]], [["d"]], success=False)])))
    cells = page.cells()
    assert [cell.get("class") for cell in cells] == [None, None, "again", "again", "again soft", None]
    assert len({cell["style"] for cell in cells if "style" in cell}) == 1
    assert cells[4]["title"] == '5  look\n"c"\n-> c\nrepeat, count 3'
    kinds = [attributes.get("class") for tag, attributes in page.elements if tag == "div"]
    assert (kinds.count("turn"), kinds.count("round")) == (2, 5)
    assert "repeat 3 of look (soft, from 3): steer, at call 5" in page.text


def changing(*results: str, success: bool = False) -> RecordedRun:
    """A run of one call that brought each of these; a person speaks before the last two."""
    calls = [PastCall(ToolCall(f"c{at}", "look", "{}"), Result(text)) for at, text in enumerate(results)]
    rounds = [Round((call,), at) for at, call in enumerate(calls)]
    return RecordedRun("r", "s", "m", success, [rounds[:-2], rounds[-2:]])


def test_results_that_differ_say_in_what() -> None:
    """From the last one of the same call in its turn: in the texts around a finding, and in the cells of the page,
    where they are marked. Equal ones say nothing."""
    run = changing("40%", "55%", "55%", "55%", "55%", "70%", "70%")
    replay = replayed([run])
    assert "look {}  -> 55%  (differs: 40 -> 55)" in printed(replay)
    cells = Page(as_html(replay)).cells()
    titles = [(cell["title"] or "").partition("\ndiffers: ")[2].partition("\n")[0] for cell in cells]
    assert titles == ["", "40 -> 55", "", "", "", "", ""]
    marked = ["other" in (cell.get("class") or "").split() for cell in cells]
    assert marked == [bool(title) for title in titles]


def test_the_page_needs_nothing_else() -> None:
    """No script, and nothing that is loaded; the browser is told to allow none. Only kinds are links."""
    page = Page(as_html(replayed([run_of(THREE, success=False)])))
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "svg", "form"}
    leading = [(tag, attributes) for tag, attributes in page.elements if {"src", "href"} & set(attributes)]
    assert leading == [("a", {"href": page_of("repeat")})] * 2
    policy = [attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.mark.slow
def test_a_long_run_is_cut_and_says_so() -> None:
    """A page stays readable whatever the run."""
    run = run_of([["a"]] * (MAX_CELLS + 7), success=False)
    page = Page(as_html(replayed([run])))
    assert len(page.cells()) == MAX_CELLS
    assert "and 7 more" in page.text


def test_secrets_stay_out() -> None:
    """Reports are shown to others: arguments and results are shown without the keys in them."""
    call = PastCall(ToolCall("c", "fetch", '{"api_key": "hush-hush"}'), Result("token=hush-hush"))
    replay = replayed([RecordedRun("r", "s", "m", False, [[Round((call,), at) for at in range(4)]])])
    assert b"hush" not in as_html(replay)
    assert b"hush" not in as_json(replay)
    assert "hush" not in printed(replay)
    told = replayed([changing(*[f"{at}\npassword=4711{at}" for at in (1, 1, 1)], "1\npassword=47115", "1", "1", "1")])
    assert "'password=***' -> 'password=***'" in printed(told)
    for report in (as_html(told), as_json(told), printed(told).encode()):
        assert b"4711" not in report


def test_hostile_texts_stay_texts_on_the_page() -> None:
    """No element and no attribute comes from a record, and no placeholder is filled in twice."""
    tame = Page(as_html(replayed([run_of([["a"]] * 4, success=False)])))
    page = Page(as_html(replayed([hostile_run(), Unreadable(HOSTILE, 0, HOSTILE)])))
    known = {(tag, *sorted(attributes)) for tag, attributes in tame.elements} | {("code",), ("ul",), ("li",)}
    assert {(tag, *sorted(attributes)) for tag, attributes in page.elements} <= known
    assert "<img src=x onerror=alert(1)>" in page.text
    assert page.text.count("$rows") == HOSTILE.count("$rows") * page.text.count("onerror")
    assert not set(page.text) & set("\x1b\x00\u202e\ud800")


def test_hostile_texts_do_not_steer_a_terminal() -> None:
    """Control codes are gone, and what looks like markup is printed."""
    text = printed(replayed([hostile_run()]))
    assert not set(text) & set("\x1b\x00\u202e\ud800")
    assert "[red]" in text


def test_hostile_texts_in_values() -> None:
    """JSON and CSV stay what they are, and a spreadsheet runs no formula."""
    run = run_of(THREE, success=False)
    replay = replayed([hostile_run(), RecordedRun(run.id, "=1+1", run.model, run.success, run.turns)])
    assert {row["source"] for row in json.loads(as_json(replay))["rows"]} == {HOSTILE, "=1+1"}
    sources = {row["source"] for row in csv.DictReader(io.StringIO(as_csv(replay).decode()))}
    assert "'=1+1" in sources
    assert len(sources) == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        (" a\n\tb  c ", "a b c"),
        ("x" * 1000, "x" * (LONGEST - 3) + "..."),
        ("a\x1b[0mb\u202ec", "a\N{REPLACEMENT CHARACTER}[0mb\N{REPLACEMENT CHARACTER}c"),
        ("", ""),
    ],
)
def test_short(text: str, shown: str) -> None:
    """One line, of printable characters, of a bounded length."""
    assert short(text) == shown


def test_a_user_message_is_marked_among_the_calls() -> None:
    """As the page draws its turns: between the calls before and after it."""
    run = run_of([["b"]], THREE, success=False)
    lines = printed(replayed([run])).splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == "---- a user message ----")
    assert [lines[at - 1].split()[0], lines[at + 1].split()[0]] == ["1", "2"]
    assert sum("user message" in line for line in lines) == 1


def many(count: int, rounds: list[list[str]], success: bool | None) -> list[RecordedRun]:
    """So many runs of one turn of these rounds."""
    return [run_of(rounds, success=success) for _ in range(count)]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([], "No recommendation: 0 runs with a call or a finding; at least 20 are needed."),
        (many(1, THREE, success=True), "No recommendation: 1 run with a call or a finding; at least 20 are needed."),
        (many(20, [["a"]], success=None), "Change nothing: nothing was found in 20 runs."),
        (
            [*many(18, [["a"]], success=True), *many(2, THREE, success=True)],
            "Change this first, because callfuse would have interrupted 2 of 20 successful runs (10.0%), most by "
            "repeat: look at some (--show 5 --rule repeat), and raise its limit, or use callfuse tune.",
        ),
        (
            [*many(20, [["a"]], success=True), *many(2, THREE, success=False)],
            "Change nothing: callfuse would have interrupted 2 of 2 failed runs and 0 of 20 successful runs.",
        ),
        (
            many(20, THREE, success=None),
            "Look at some findings first (--show 5), because the records call no run successful: callfuse "
            "would have interrupted 20 of 20 unlabelled runs.",
        ),
    ],
)
def test_the_answer_comes_first(runs: list[RecordedRun], says: str) -> None:
    """In one sentence, in every report that has room for it."""
    replay = replayed(runs)
    assert printed(replay, 400).splitlines()[0] == says
    assert json.loads(as_json(replay))["answer"] == says
    assert says in Page(as_html(replay)).text


def test_what_only_warns_interrupts_nothing() -> None:
    """So there is nothing to change."""
    replay = replayed(many(20, THREE, success=True), LoopSettings(mode=MODES["warn"]))
    assert printed(replay, 400).startswith(
        "Change nothing: callfuse would have withheld no call in 20 runs, and found something in 20."
    )


def test_every_column_is_explained() -> None:
    """In the notes below the table."""
    texts = table(replayed([run_of(THREE, success=success) for success in (True, False, None)]))
    notes = " ".join(NOTES)
    for heading in texts.headings:
        for word in heading.removesuffix(" runs").split():
            assert word in notes.lower(), word
