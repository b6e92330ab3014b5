"""A rung is one line in the table of rungs; the page of settings names it."""

from pathlib import Path

import pytest

from tests.extending.project import Copy

TABLE = "src/callfuse/policy/rungs.py"
LINE = '    NUDGE = "nudge", Act("Have another look at what {tool_name} has returned.", asks=True)'
WORD = "callfuse was told of one more rung, `nudge`."


@pytest.mark.slow
def test_a_line_makes_a_rung(tmp_path: Path) -> None:
    """All else follows: settings, schema, messages, the ladder, and what is done on the wire and in process."""
    copy = Copy(tmp_path)
    copy.add_line(TABLE, '    WARN = "warn"', LINE)
    copy.add_line("docs/settings.md", "`chance_then_break`), `graduated` or `unattended`", WORD)
    assert copy.changes() == {TABLE: [f"+ {LINE}"], "docs/settings.md": [f"+ {WORD}"]}
    derived = ("tests/reference/test_schema.py", "tests/config/test_settings_page.py", "tests/project/test_layers.py")
    assert copy.run_tests("tests/extending/inside_rung.py", *derived, "-m", "not slow") == ""
