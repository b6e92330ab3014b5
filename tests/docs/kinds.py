"""How each block is run: by its language, by another test, or not at all, for a reason."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.docs import data, given, outputs, shell, snippets
from tests.docs.blocks import Block, is_block
from tests.docs.checks import CHECKS
from tests.docs.hosted import hosts_run
from tests.docs.outputs import PRINTED
from tests.docs.world import World
from tests.project.sources import PROJECT

Runner = Callable[[Block, World, Path], None]


def runner_of(block: Block) -> Runner:
    """What runs a block. LookupError if nobody does."""
    if named(block, given.EXCEPTIONS):
        return _nothing
    if block.page in given.WHOLE_PAGES or named(block, given.ELSEWHERE):
        return _elsewhere
    if named(block, PRINTED):
        return outputs.run
    if block.language in RUNNERS:
        return RUNNERS[block.language]
    what = (
        "output: add what prints it to `outputs.PRINTED`" if block.language == "text" else "a language without a runner"
    )
    raise LookupError(f"{block}: nobody runs this: it is {what}")


def named(block: Block, table: Mapping[tuple[str, str], object]) -> list[str]:
    """The entries of a table that are of this block."""
    return [start for page, start in table if is_block(block, page, start)]


def test_of(block: Block) -> str:
    """The test that runs a block elsewhere, as a path and a name."""
    if block.page in given.WHOLE_PAGES:
        return given.WHOLE_PAGES[block.page]
    [test] = [test for (page, start), test in given.ELSEWHERE.items() if is_block(block, page, start)]
    return test


def _nothing(block: Block, world: World, folder: Path) -> None:
    """An exception."""


def _elsewhere(block: Block, world: World, folder: Path) -> None:
    """The test is there; a Python block is read here all the same."""
    path, _, name = test_of(block).partition("::")
    assert f"def {name}(" in (PROJECT / path).read_text(encoding="utf-8")
    if block.language == "python":
        assert snippets.wrong_names(block.text) == []


def _python(block: Block, world: World, folder: Path) -> None:
    """A block of a host that is not installed here is only read."""
    if hosts_run(block) and not snippets.can_run(block, world, folder):
        assert snippets.wrong_names(block.text) == []
    else:
        checks = [check for (page, start), check in CHECKS.items() if is_block(block, page, start)]
        snippets.run(block, world, folder, checks[0] if checks else None)


def _shell(block: Block, world: World, folder: Path) -> None:
    shell.run(block, world, folder)


def _javascript(block: Block, world: World, folder: Path) -> None:
    """Node can read it. What it does, only a test of its own can tell."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    file = folder / "block.mjs"
    file.write_text(block.text, encoding="utf-8")
    subprocess.run([node, "--check", str(file)], timeout=60, check=True)


RUNNERS: Mapping[str, Runner] = {
    "python": _python,
    "sh": _shell,
    "console": outputs.run_console,
    "js": _javascript,
    **data.RUNNERS,
}
"""By language."""
