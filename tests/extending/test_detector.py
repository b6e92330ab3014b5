"""A detector is its own file and a line in the registry; its row in the page of settings says what it declares."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extending.project import TOYS, Copy

TEXT = (TOYS / "detector.py").read_text(encoding="utf-8")
ROW = (
    "| `detectors.monotone` | `3` | `CALLFUSE_DETECTORS_MONOTONE` | Rounds in a row that call one tool and no other. |"
)
REGISTRY = "src/callfuse/detect/registry.py"
DERIVED = (
    "tests/reference/test_schema.py",
    "tests/config/test_settings_page.py",
    "tests/reference/test_template.py",
    "tests/policy/test_explain.py::test_every_kind_has_its_words",
    "tests/project/test_layers.py",
)
pytestmark = pytest.mark.slow


def with_detector(folder: Path, text: str) -> Copy:
    """A copy of the project that has the detector."""
    copy = Copy(folder)
    copy.add_file("src/callfuse/detect/monotone.py", text)
    copy.add_line(REGISTRY, "from callfuse.detect.kind import", "from callfuse.detect.monotone import Monotone")
    copy.add_line(REGISTRY, "    WeightedBudget(),", "    Monotone(),")
    copy.add_line("docs/settings.md", "| `detectors.budget`", ROW)
    return copy


def test_a_file_and_a_line_make_a_detector(tmp_path: Path) -> None:
    """All else follows: settings, schema, page, texts, tools, layers, and what is foreseen of it."""
    copy = with_detector(tmp_path, TEXT)
    assert copy.changes() == {
        "docs/settings.md": [f"+ {ROW}"],
        "src/callfuse/detect/monotone.py": [],
        REGISTRY: ["+ from callfuse.detect.monotone import Monotone", "+     Monotone(),"],
    }
    assert copy.run_tests("tests/extending/inside_detector.py", *DERIVED, "-m", "not slow") == ""
    assert copy.run_tests("tests/detect/test_soundness.py", "-k", "not healthy") == ""


def test_a_cap_is_a_word_of_it(tmp_path: Path) -> None:
    """`most="warn"`: it warns on every ladder, and nothing is held for it."""
    capped = TEXT.replace('        limit=SoftLimit("rounds"', '        most="warn",\n        limit=SoftLimit("rounds"')
    assert with_detector(tmp_path, capped).run_tests("tests/extending/inside_detector.py") == ""


def test_what_is_left_out_is_safe(tmp_path: Path) -> None:
    """Without `recurring` every call is held for it: what it finds is withheld all the same."""
    head, _, rest = TEXT.partition("    def recurring(")
    bare = head + rest[rest.index("    def evidence(") :]
    tests = ("tests/extending/inside_detector.py", "tests/detect/test_soundness.py")
    assert with_detector(tmp_path, bare).run_tests(*tests, "-k", "not held_for_nothing and not healthy") == ""


FACT = "from callfuse.detect import facts"
DETECTOR = "from callfuse.detect.detector import"
SILENT = """
    needs = facts.OTHERS
"""


@pytest.mark.parametrize(
    "silenced",
    [
        pytest.param(lambda text: text.replace(DETECTOR, f"{FACT}\n{DETECTOR}") + SILENT, id="needs"),
        pytest.param(
            lambda text: text.replace("[one.call for one in newest.calls] if newest else ()", "()"), id="recurring"
        ),
        pytest.param(
            lambda text: text.replace(DETECTOR, f"{FACT}\n{DETECTOR}").replace(
                "    def rec", "    needs = facts.CALLS\n\n    def rec"
            ),
            id="finds",
        ),
    ],
)
def test_what_would_silence_it_is_found(tmp_path: Path, silenced: Callable[[str], str]) -> None:
    """By the properties that hold over the registry: no word of a detector can make it miss in silence."""
    text = silenced(TEXT)
    assert text != TEXT
    foreseen = "tests/detect/test_soundness.py"
    assert "1 failed" in with_detector(tmp_path, text).run_tests(foreseen, "-k", "foreseen", profile="once")
