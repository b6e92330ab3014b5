"""Every block of the README and of `docs/` runs, and none is left out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, every_block, faults, pages
from tests.docs.kinds import runner_of
from tests.docs.world import World, opened
from tests.project.sources import document


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One vendor and one guard for all blocks."""
    with opened() as world:
        yield world


@pytest.mark.slow
@pytest.mark.parametrize("block", every_block(), ids=str)
def test_a_block(block: Block, world: World, tmp_path: Path) -> None:
    """It runs."""
    runner_of(block)(block, world, tmp_path)


@pytest.mark.parametrize("page", pages())
def test_every_block_can_be_run(page: str) -> None:
    """It stands in a fence that names its language, and somebody runs it."""
    assert faults(document(page)) == []
    for block in every_block():
        if block.page == page:
            runner_of(block)
