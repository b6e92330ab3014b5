"""Long searches: every test is in one shard, the same one everywhere, and laws have their number of examples."""

import os
import subprocess
import sys
from argparse import ArgumentTypeError

import pytest

from tests.project.sources import PROJECT
from tests.support.shards import Shard

IDS = [f"tests/laws/test_block.py::test_{at}[openai-chat-streamed]" for at in range(1000)]

NO_SHARDS = ("", "3", "0/8", "9/8", "1/0", "a/8", "-1/8", "1/8/2", "\u0663/8", "1/99999")

COUNTS = """
import sys
import pytest

class Prints:
    def pytest_collection_modifyitems(self, items):
        for item in items:
            if hasattr(item.obj, "hypothesis"):
                print("examples", item.path.parent.name, item.obj._hypothesis_internal_use_settings.max_examples)

sys.exit(pytest.main(["-qq", "--collect-only", "-p", "no:cacheprovider", "-n", "0", *sys.argv[1:]], plugins=[Prints()]))
"""


def test_every_test_is_in_one_shard() -> None:
    """And shards are about as large as each other."""
    shards = [Shard(number, 8) for number in range(1, 9)]
    sizes = [sum(test_id in shard for test_id in IDS) for shard in shards]
    assert sum(sizes) == len(IDS)
    assert all(sum(test_id in shard for shard in shards) == 1 for test_id in IDS)
    assert 90 < min(sizes) <= max(sizes) < 160


def test_a_shard_is_the_same_everywhere() -> None:
    """Python's own hash would differ with each process."""
    assert [next(number for number in range(1, 9) if one in Shard(number, 8)) for one in IDS[:6]] == [4, 2, 5, 5, 2, 2]


def test_the_only_shard_has_all_tests() -> None:
    """`1/1` is no choice."""
    assert all(test_id in Shard.parse("1/1") for test_id in IDS)


@pytest.mark.parametrize("text", NO_SHARDS)
def test_what_is_no_shard(text: str) -> None:
    """It is told, with an example."""
    with pytest.raises(ArgumentTypeError, match="as in 3/8"):
        Shard.parse(text)


@pytest.mark.slow
def test_pytest_runs_one_shard() -> None:
    """Two shards of a file have all of its tests, and none twice; a shard that does not exist is told."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-n", "0", __file__]
    told = [
        subprocess.run([*command, "--shard", text], cwd=PROJECT, capture_output=True, text=True, check=False)
        for text in ("1/2", "2/2", "3/2")
    ]
    first, second = ([line for line in one.stdout.splitlines() if "::" in line] for one in told[:2])
    assert len({*first, *second}) == len(first) + len(second) == 5 + len(NO_SHARDS)
    assert min(len(first), len(second)) > 0
    assert told[2].returncode != 0
    assert "as in 3/8" in told[2].stderr


@pytest.mark.slow
def test_a_law_has_fewer_examples() -> None:
    """It runs for every dialect and form; whatever is imported after it has all of them again."""
    files = ("tests/laws/test_block.py", "tests/wire/test_aws_events.py")
    told = subprocess.run(
        [sys.executable, "-c", COUNTS, *files],
        cwd=PROJECT,
        env=os.environ | {"HYPOTHESIS_PROFILE": "thorough"},
        capture_output=True,
        text=True,
        check=True,
    )
    counts = {line.removeprefix("examples ") for line in told.stdout.splitlines() if line.startswith("examples ")}
    assert counts == {"laws 100", "wire 500"}
