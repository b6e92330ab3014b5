"""`CONTRIBUTING.md` is right: its detector can be added as it is shown, and its commands, files and forms are there."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import Block, blocks_in
from tests.extending.project import TOYS, Copy
from tests.project.sources import PROJECT, document

PAGES = ("CONTRIBUTING.md", "SECURITY.md")
BLOCKS = blocks_in(document("CONTRIBUTING.md"), "CONTRIBUTING.md")
FORMS = sorted((PROJECT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def shown(language: str) -> list[Block]:
    """The blocks of a language."""
    return [block for block in BLOCKS if block.language == language]


def in_a_copy(folder: Path) -> Copy:
    """A copy of the project with what the page adds to it."""
    copy = Copy(folder)
    for block in shown("python"):
        copy.add_file(block.file, block.text.partition("\n")[2])
    (registry,) = shown("diff")
    head, *lines = registry.text.splitlines()
    after = ""
    for line in lines:
        if line.startswith("+"):
            copy.add_line(head.removeprefix("--- "), after, line[1:])
        after = line[1:]
    (row,) = shown("markdown")
    copy.add_line("docs/settings.md", "| `detectors.budget`", row.text.rstrip("\n"))
    return copy


def test_the_detector_is_the_toy() -> None:
    """That of the tests beside this one, which try it on the wire."""
    detector, _ = shown("python")
    assert detector.text.partition("\n")[2] == (TOYS / "detector.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_detector_can_be_added(tmp_path: Path) -> None:
    """Step by step; then the commands of the page pass."""
    copy = in_a_copy(tmp_path)
    commands = shown("sh")[-1].text.splitlines()
    assert len(commands) == 2
    for command in commands:
        program, *arguments = shlex.split(command)
        assert (program, arguments[:2]) == (".venv/bin/python", ["-m", "pytest"])
        assert copy.run_tests(*arguments[2:]) == ""


def test_targets_of_make_are_there() -> None:
    """Each that the page names."""
    targets = set(re.findall(r"^(\w+):", document("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make (\w+)", document("CONTRIBUTING.md"), re.MULTILINE))
    assert {"setup", "quick", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_files_are_there(page: str) -> None:
    """Those that a page links to, and those that it names. Blocks may name new ones."""
    text = re.sub(r"^```.*?^```", "", document(page), flags=re.MULTILINE | re.DOTALL)
    linked = re.findall(r"\]\((?!https:)([^)#\s]+)", text)
    named = re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", text)
    assert linked
    assert [name for name in (*linked, *named) if not (PROJECT / name).exists()] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_can_be_filled_in(path: Path) -> None:
    """It has what GitHub requires: a name, a description, and fields with labels and ids of their own."""
    form: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        assert [set(link) for link in form["contact_links"]] == [{"name", "url", "about"}] * len(form["contact_links"])
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids) > 0
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown")
        assert field["attributes"]["label"]
        assert field["type"] != "dropdown" or len(field["attributes"]["options"]) > 1
