"""`docs/architecture.md` is true: its table of the hold is the code's, and what it names exists."""

import re

import pytest

from callfuse.guard import hold
from tests.project.sources import PROJECT, SOURCE, document, quoted

PAGE = document("docs/architecture.md")
GENERATED = re.compile(r"<!-- callfuse\.guard\.hold\.table\(\) -->\n(.*?)\n<!-- end -->", re.DOTALL)


def table_of(page: str) -> str:
    """The hold's table as the page has it."""
    found = GENERATED.search(page)
    assert found is not None, "the page has no table of the hold"
    return found[1]


def missing(page: str) -> list[str]:
    """The paths that the page names and that are not there: from the project's root, or from `src/callfuse`."""
    paths = [name for name in quoted(page) if re.fullmatch(r"[\w./-]+(/|/[\w-]+(\.\w+)?|\.py|\.md)", name)]
    return [path for path in paths if not any((root / path).exists() for root in (PROJECT, SOURCE))]


def test_the_table_of_the_hold_is_the_code_s() -> None:
    """To bring the page up to date, paste what `callfuse.guard.hold.table()` gives."""
    assert table_of(PAGE) == hold.table()


def test_a_changed_transition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that moves otherwise has another table."""
    other = (hold.Effect.JUDGE, hold.State.OPEN)
    for key in hold.TRANSITIONS:
        with monkeypatch.context() as patch:
            patch.setitem(hold.TRANSITIONS, key, other)
            assert table_of(PAGE) != hold.table()


def test_every_file_that_it_names_exists() -> None:
    """The page leads to files, and none of them is gone."""
    assert "guard/guard.py" in quoted(PAGE)
    assert missing(PAGE) == []


@pytest.mark.parametrize("path", ["guard/gone.py", "src/callfuse/gone/", "tests/laws/test_gone.py", "detect/gone.py"])
def test_a_file_that_is_gone_is_found(path: str) -> None:
    """A path to nothing is told."""
    assert missing(f"See `{path}` and `guard/guard.py`.") == [path]


def test_it_is_one_page() -> None:
    """What cannot be said on a page belongs into the docstrings."""
    assert len(PAGE.splitlines()) <= 120
