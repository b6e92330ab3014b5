"""Pages of `docs/mount` as a test reads them: the files that they tell to write, and the commands to start them."""

import re
from dataclasses import dataclass
from functools import cache

from tests.project.sources import PROJECT

FOLDER = PROJECT / "docs" / "mount"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# ([\w./-]+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Page:
    """`files`: texts by name, of blocks whose first line is a comment with a file's name. `commands`: each line of its
    `sh` blocks but for `pip`. `text`: all of it."""

    files: dict[str, str]
    commands: tuple[str, ...]
    text: str


@cache
def page(name: str) -> Page:
    """The page of that name."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    found = [(language, block) for language, block in _BLOCK.findall(text)]
    files = {named[1]: block for _, block in found if (named := _NAMED.match(block))}
    lines = [line for language, block in found if language == "sh" for line in block.splitlines()]
    return Page(files, tuple(line for line in lines if line and not line.startswith(("pip ", "#"))), text)
