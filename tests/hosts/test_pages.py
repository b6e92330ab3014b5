"""The pages of `docs/mount` are whole: each is tested, in the index, says with what, and its code can be read."""

import ast

import pytest

from tests.hosts.pages import FOLDER, page
from tests.hosts.test_mounts import MOUNTS

NAMES = sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "README.md")
OTHERWISE = {"nginx", "litellm", "mcp", "ray-llm"}
"""Pages that a test of their own follows: `test_nginx` and the like."""
MOUNTED = {"ray-llm"}
"""Those of them whose test starts the host with all files of the page."""


@pytest.mark.parametrize("name", NAMES)
def test_each_page_is_in_the_index(name: str) -> None:
    """By a link."""
    assert f"]({name}.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHERWISE])
def test_each_page_is_tested_with_the_versions_that_it_names(name: str) -> None:
    """What was tried is what the test installs."""
    [mount] = [mount for mount in MOUNTS if mount.name == name]
    shown = [one.partition("[")[0].partition("==")[0] for one in mount.requirements]
    tried = page(name).text.rpartition("Tried with")[2]
    for requirement, package in zip(mount.requirements, shown, strict=True):
        if package in tried.lower().replace(" ", "-") or package == name:
            assert requirement.partition("==")[2] in tried, requirement
    assert any(requirement.partition("==")[2] in tried for requirement in mount.requirements)


@pytest.mark.parametrize("name", NAMES)
def test_code_can_be_read(name: str) -> None:
    """Every Python file of a page is Python, and there is a command where the page is run."""
    for path, text in page(name).files.items():
        if path.endswith(".py"):
            ast.parse(text)
    assert page(name).commands or name in OTHERWISE
