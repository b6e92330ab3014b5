"""What callfuse says is plain English: pages, help texts, settings, messages, and the beginnings of docstrings."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from callfuse.cli.app import app
from callfuse.config.serve import Route
from callfuse.policy.sections import ModelSettings, ToolSettings
from callfuse.reference.keys import descriptions, reference
from tests.project.sources import PROJECT, SOURCE, document
from tests.project.test_building import make

HABITS: Final = {
    r"\bof (?:which|whose|whom)\b": "begin a new sentence",
    r"\bwho (?:has|have) it\b": "say who: the client, the caller",
    r"\blet(?:s|ting)? (?:it |them |all )?go\b": "passes, releases",
    r"\b(?:go|goes|gone|going) on\b": "continues",
    r"\b(?:is|are|be|was|were|been) told\b(?! apart)": "gets, knows",
    r"\btells? of\b": "describes, reports",
    r"\bt(?:ake|akes|aken|ook) (?:a|the|its) (?:\w+ )?rung\b": "reaches a rung, leads to a rung",
    r"\bmade of\b": "contains, is built from",
    r"\bAs of `": "the text itself",
    r"\b(?:is|are) none\b": "there is no ..., is not a ...",
    r"\b(?:it )?is one (?:that|of|which)\b": "say what it is",
    r"\b(?:nobody|somebody|anybody) (?:knows|says|asks)\b": "it is unknown",
    r"\bbut for\b": "except",
    r"\bstarred\b": "replaced by asterisks",
    r"\ball the same\b": "still, anyway",
    r"\bfor ever\b": "forever",
    r"\b(?:whoever|whosoever)\b": "anyone who",
    r"\bheard of\b": "used, seen",
    r"\bin (?:its|their|the) midst\b": "in the middle",
    r"\b(?:brings|brought)\b": "returns, contains",
    r"\bwhere not given\b": "if not set",
    r"\b(?:what|that|which) holds?\b": "in effect, contains",
    r"\bhow alike\b": "how similar",
    r"(?<![Tt]here )\bis no (?!longer\b)[a-z]": "is not a",
    r"\bthere is none\b": "there is no ...",
    r"\bsaid of\b": "rated, reported",
    r"\bby its nature\b": "say what it is for",
    r"\bOff means\b": "If off, ...",
}
"""Habits of a private English, each with what to write in its place."""
IN_CODE: Final = frozenset({r"\b(?:is|are) none\b", r"\bthere is none\b"})
"""Habits that docstrings may have: "None if there is none"."""
PAGES: Final = [
    *(PROJECT / name for name in ("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
ROOMS: Final = (
    "admin",
    "asgi",
    "cli",
    "commands",
    "config",
    "demo",
    "inprocess",
    "mcp",
    "observe",
    "offline",
    "proxy",
    "reference",
    "stores",
)
"""Where messages are for people; what is written into conversations is for models."""
BLOCK: Final = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)


SENTENCE: Final = re.compile(r"(?<=\.)\s+(?=[A-Z`])")
CODE: Final = re.compile(r"`[^`]*`")


def habits_in(text: str, allowed: Collection[str] = ()) -> list[str]:
    """The habits in a text, each with the words around it and what to write instead."""
    flat = " ".join(text.split())
    return [
        f"...{flat[max(0, found.start() - 40) : found.end() + 40]}...: {better}"
        for habit, better in HABITS.items()
        if habit not in allowed
        for found in re.finditer(habit, flat)
    ]


def help_texts(command: Any, name: str = "callfuse") -> Iterator[tuple[str, str]]:
    """The texts of a command and of all below it, each with its place."""
    yield name, f"{command.help or ''}\n{command.epilog or ''}"
    for param in command.params:
        yield f"{name} {param.name}", getattr(param, "help", None) or ""
    for one, below in getattr(command, "commands", {}).items():
        yield from help_texts(below, f"{name} {one}")


def sentences_of_settings() -> Iterator[tuple[str, str]]:
    """Of every key, of those that only tools or models have, and of routes."""
    for key in reference():
        yield ".".join(key.path), key.text
    for model in (ToolSettings, ModelSettings, Route):
        for name, text in descriptions(model).items():
            yield f"{model.__name__}.{name}", text


def first_sentences(tree: ast.Module) -> Iterator[str]:
    """The first sentence of each docstring in a module, and of each text that describes a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield SENTENCE.split(CODE.sub("`", node.value.value.split("\n\n")[0]))[0]


def messages(tree: ast.Module) -> Iterator[str]:
    """The texts in a module that have words in them; no docstrings."""
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | plain:
            text = node.value
        else:
            continue
        if " " in text:
            yield text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_pages(page: Any) -> None:
    """In what is not code."""
    assert habits_in(BLOCK.sub("", page.read_text(encoding="utf-8"))) == []


def test_the_newest_entry_of_the_changelog() -> None:
    """It is for users, too."""
    newest = document("CHANGELOG.md").split("\n## ")[1]
    assert habits_in(newest) == []


def test_help_texts() -> None:
    """Of every command and option."""
    found = {place: habits for place, text in help_texts(typer.main.get_command(app)) if (habits := habits_in(text))}
    assert found == {}


def test_sentences_of_settings() -> None:
    """They stand in `config init`, in the schema and on the page."""
    found = {place: habits for place, text in sentences_of_settings() if (habits := habits_in(text))}
    assert found == {}


@pytest.mark.parametrize("room", ROOMS)
def test_messages(room: str) -> None:
    """Errors, log lines, and what commands and pages print."""
    found = [
        f"{file.name}: {habit}"
        for file in sorted((SOURCE / room).rglob("*.py"))
        for text in messages(ast.parse(file.read_text(encoding="utf-8")))
        for habit in habits_in(text)
    ]
    assert found == []


def test_first_sentences_of_docstrings() -> None:
    """They say what a thing does, to a reader who is new to it."""
    found = [
        f"{file.relative_to(SOURCE)}: {habit}"
        for file in sorted(SOURCE.rglob("*.py"))
        for text in first_sentences(ast.parse(file.read_text(encoding="utf-8")))
        for habit in habits_in(text, IN_CODE)
    ]
    assert found == []


def test_lint_checks_words() -> None:
    """`make lint` runs these tests, and the spelling checker."""
    script = make("--dry-run", "--old-file=.venv/ready-to-run", "--old-file=.venv/ready", "lint")
    assert "pytest --quiet tests/project/test_words.py" in script
    assert "codespell" in script


def test_a_misspelling_is_found(tmp_path: Path) -> None:
    """By the project's own settings of the checker, which leave out what is meant."""
    (tmp_path / "page.md").write_text("The te of keep-alives, and a recieved answer.\n", encoding="utf-8")
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(PROJECT / "pyproject.toml"), "page.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 65, done.stderr
    assert done.stdout == "page.md:1: recieved ==> received\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("If it fails, it lets\ngo, and goes on.", 2),
        ("As of `callfuse serve`.", 1),
        ("As of version 2 nothing changed.", 0),
        ("There is no page, and it is no longer there. Callers are told apart.", 0),
        ("Of these the first is used.", 0),
    ],
)
def test_they_are_found(text: str, count: int) -> None:
    """Also over the end of a line; words that only look like them are not."""
    assert len(habits_in(text)) == count
