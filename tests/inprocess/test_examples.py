"""The examples for agents of one's own run as they stand, and show what they say."""

import runpy

import pytest

from tests.project.sources import PROJECT


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        (
            "tracker",
            ["call 2 of search_web: run:", "call 3 of search_web: not run: [callfuse]", "answer after 3 calls"],
        ),
        ("detector", ["  warn: lap 2 of one sequence", "  block: lap 3 of one sequence", "3 warnings, 1 blocks"]),
        (
            "guarded_tools",
            [
                'TOOL[search]: {"results":[]}\n',
                "You already called search and got:",
                "There is no tool serach",
                "  ended",
            ],
        ),
    ],
)
def test_an_example(name: str, shows: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints, in order."""
    runpy.run_path(str(PROJECT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    places = [said.find(text) for text in shows]
    assert -1 not in places
    assert places == sorted(places)
