"""A dialect is a folder and a line in the registry; its vendor, for tests of anybody's, a file and a line."""

from pathlib import Path

import pytest

from tests.extending.project import TOYS, Copy

REGISTRY = "src/callfuse/dialects/__init__.py"
VENDORS = "src/callfuse/testing/vendor.py"


@pytest.mark.slow
def test_a_folder_and_a_line_make_a_dialect(tmp_path: Path) -> None:
    """The guard, the tools and the scripted vendor know it."""
    copy = Copy(tmp_path)
    for name in ("__init__", "request", "answer"):
        text = (TOYS / "jot" / f"{name}.py").read_text(encoding="utf-8")
        copy.add_file(f"src/callfuse/dialects/jot/{name}.py", text)
    copy.add_file("src/callfuse/testing/jot.py", (TOYS / "vendor.py").read_text(encoding="utf-8"))
    copy.add_line(REGISTRY, "from callfuse.dialects.gemini", "from callfuse.dialects.jot import Jot")
    copy.add_line(REGISTRY, "    Bedrock(),", "    Jot(),")
    copy.add_line(VENDORS, "from callfuse.testing.gemini", "from callfuse.testing.jot import JotVendor")
    copy.add_line(VENDORS, "    CohereVendor(),", "    JotVendor(),")
    assert copy.changes() == {
        REGISTRY: ["+ from callfuse.dialects.jot import Jot", "+     Jot(),"],
        "src/callfuse/dialects/jot/__init__.py": [],
        "src/callfuse/dialects/jot/answer.py": [],
        "src/callfuse/dialects/jot/request.py": [],
        "src/callfuse/testing/jot.py": [],
        VENDORS: ["+ from callfuse.testing.jot import JotVendor", "+     JotVendor(),"],
    }
    derived = ("tests/dialects/test_recorded.py", "tests/testing/test_rules_total.py", "tests/project/test_layers.py")
    assert copy.run_tests("tests/extending/inside_dialect.py", *derived, "-m", "not slow") == ""
