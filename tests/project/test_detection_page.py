"""`docs/detection.md` and `docs/kinds` are true: kinds have pages, examples are replayed, tables are the code's."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from benchmarks.quality import BEGIN, COLUMNS, END, SHIPPED, SOURCES, markdown

from callfuse.config import load_config
from callfuse.detect.registry import KINDS
from callfuse.offline.judging import judge_run
from callfuse.offline.replay import Figures
from callfuse.policy.settings import LoopSettings
from tests.detect.known_answers import READ, answers_table, rules_table
from tests.offline.reading import runs_in
from tests.project.sources import PROJECT, document, quoted, rows

PAGE = document("docs/detection.md")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((PROJECT / "docs/kinds").glob("*.md"))}
"""The page of each kind."""
ALL = "\n".join([PAGE, *PAGES.values()])
HEADINGS = ["What it finds", "Why it is bad", "Example", "Limits and settings", "Figures", "False alarms"]
"""The sections of a kind's page, in their order."""
_EXAMPLE = re.compile(r"(?:^With `([^`\n]+)`:\n\n)?^```json\n(.*?)^```\n\n(Found: [^\n]+)$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A recorded run on the page: what is set for it, and what the page says is found in it."""

    settings: str
    run: str
    found: str


def examples(text: str) -> list[Example]:
    """The examples of a text."""
    return [Example(*groups) for groups in _EXAMPLE.findall(text)]


def settings_shown(page: str) -> list[str]:
    """Every setting of the block `tool_call_loop` that a page writes out with a value."""
    pairs = [(text, text.partition(": ")) for text in quoted(page)]
    return [text for text, (key, _, value) in pairs if value and key in LoopSettings.model_fields]


def found(example: Example, folder: Path) -> str:
    """What `callfuse replay` finds in an example, as the page says it."""
    settings: dict[str, Any] = yaml.safe_load(example.settings) if example.settings else {}
    file = folder / "run.json"
    file.write_text(example.run)
    [run] = runs_in(str(file))
    hits = [
        f"call {number} {', '.join(f'`{kind}`' for kind in one.kinds())} ({one.verdict.rung})"
        for number, one in enumerate(judge_run(run, load_config({"tool_call_loop": settings}).tool_call_loop), 1)
        if one.finding is not None and one.verdict is not None
    ]
    return f"Found: {'; '.join(hits) or 'nothing'}."


def test_every_kind_has_a_page() -> None:
    """A new kind needs one, and the page of a kind that is gone goes, too."""
    assert sorted(PAGES) == sorted(KINDS)


@pytest.mark.parametrize("kind", PAGES)
def test_pages_have_one_form(kind: str) -> None:
    """Its name, one sentence that lists can show, the same sections; it is not a treatise."""
    title, summary, *_ = PAGES[kind].split("\n\n")
    assert title == f"# `{kind}`"
    assert re.fullmatch(r"[A-Z][^.\n]+\.", summary)
    assert re.findall(r"^## (.+)$", PAGES[kind], re.MULTILINE) == HEADINGS
    assert len(blockless(PAGES[kind]).split()) <= 360


def blockless(page: str) -> str:
    """A page without its examples."""
    return re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def test_every_kind_has_an_example_in_which_it_is_found() -> None:
    """The smallest run that shows it; of a call that was cut off no run is recorded, because it never ran, and one that
    runs away is longer than the page. Monologues and storms have no call."""
    missing = [kind for kind, page in PAGES.items() if not any(f"`{kind}`" in one.found for one in examples(page))]
    assert missing == ["compaction_storm", "monologue", "retry_storm", "runaway", "spawn_storm", "truncated"]


@pytest.mark.parametrize("example", examples(ALL), ids=lambda example: example.found)
def test_examples_are_found_as_the_page_says(example: Example, tmp_path: Path) -> None:
    """All findings of the run, with their calls and rungs."""
    assert found(example, tmp_path) == example.found


def test_no_example_is_missed() -> None:
    """Each block of JSON on the pages is one."""
    assert len(examples(ALL)) == ALL.count("```json\n") >= len(KINDS)


def test_another_finding_would_be_told(tmp_path: Path) -> None:
    """The page is compared with what is replayed, not with itself."""
    [repeat] = examples(PAGES["repeat"])
    assert found(repeat._replace(settings="max_repeats: 0"), tmp_path) == "Found: nothing." != repeat.found


def test_the_table_of_kinds_has_their_limits() -> None:
    """Each with a link to its page, the default of its soft limit, and whether it is on."""
    listed = rows(PAGE, "The kinds")
    assert sorted(row[0] for row in listed) == sorted(f"[`{kind}`](kinds/{kind}.md)" for kind in PAGES)
    for row in listed:
        kind = KINDS[quoted(row[0])[0]]
        if kind.limit is not None:
            assert re.search(rf"\b{kind.limit.default}\b", row[2]), row
            assert ("on" if kind.limit.on else "off") == row[4].partition(",")[0], row


def test_the_figures_are_the_benchmark_s() -> None:
    """The tables between the markers have its heads; to bring them up to date, run the command in the marker."""
    shown = PAGE.partition(BEGIN)[2].partition(END)[0]
    figures = Figures()
    figures.runs[True] = figures.runs[False] = 1
    tables = markdown({SHIPPED: dict.fromkeys(SOURCES, figures)})
    heads = [line for line in tables.splitlines() if "good runs" in line or line.startswith("###")]
    assert len(heads) == 6
    assert [line for line in shown.splitlines() if "good runs" in line or line.startswith("###")] == heads
    width = len([column for column in COLUMNS if column.on_page])
    assert all(line.count("|") > width for line in shown.splitlines() if line.startswith("|"))


def test_the_known_answers_are_those_of_the_tests() -> None:
    """To bring them up to date, paste what `tests.detect.known_answers` prints."""
    assert rules_table() in PAGE
    assert answers_table() in PAGE
    assert READ in PAGE


@pytest.mark.parametrize("text", settings_shown(ALL))
def test_settings_can_be_set(text: str) -> None:
    """What the page says to set is accepted as it stands."""
    load_config({"tool_call_loop": yaml.safe_load(text)})


def test_settings_are_read_from_the_page() -> None:
    """Those of the section on false alarms are among them, one for a kind and one for a tool."""
    keys = {text.partition(":")[0] for text in settings_shown(PAGE.partition("## False alarms")[2])}
    assert {"per_tool", "pollers", "state_changing", "detectors", "max_repeats", "mode"} <= keys
