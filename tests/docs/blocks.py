"""The fenced blocks of the README and of `docs/`. In: Markdown. Out: blocks with page, line and language."""

import re
from dataclasses import dataclass
from functools import cache
from textwrap import dedent

from tests.project.sources import PROJECT, document

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<language>[^\n`]*)$")
_CONTAINER = re.compile(r"^ *([-*+] |\d+[.)] |!!! |\?\?\?\+? |=== )")
"""What has lines of its own that are indented: items of lists, admonitions, tabs."""
_NAMED = re.compile(r"(?:#|//|--|;) ?([\w./-]+\.\w+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `page`: its path from the project's root; `line`: that of its fence, from 1; `text` ends with a
    newline, and is not indented."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Its place, for test ids and messages."""
        return f"{self.page}:{self.line}"

    @property
    def start(self) -> str:
        """The first line that is not empty, by which tables name the block: lines of pages move."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")

    @property
    def file(self) -> str:
        """The name of the file that the block is: its first line is a comment with nothing else in it, or ''."""
        named = _NAMED.match(self.start)
        return named[1] if named else ""


def pages() -> list[str]:
    """The README and every page of `docs/`."""
    return ["README.md", *sorted(path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("docs/**/*.md"))]


def blocks_in(text: str, page: str = "page.md") -> list[Block]:
    """The blocks of a page, in order. ValueError for a fence that is not closed."""
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if opened := _FENCE.match(lines[at]):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == opened["marks"]), None)
            if end is None:
                raise ValueError(f"{page}:{at + 1}: this fence is not closed")
            body = dedent("".join(f"{line}\n" for line in lines[at + 1 : end]))
            found.append(Block(page, at + 1, opened["language"].strip().partition(" ")[0], body))
            at = end
        at += 1
    return found


@cache
def every_block() -> tuple[Block, ...]:
    """All blocks of all pages."""
    return tuple(block for page in pages() for block in blocks_in(document(page), page))


def blocks_of(page: str) -> list[Block]:
    """The blocks of one page."""
    return [block for block in every_block() if block.page == page]


def is_block(block: Block, page: str, start: str) -> bool:
    """Whether an entry of a table, a page and how a block begins, is of this block."""
    return block.page == page and block.start.startswith(start)


def faults(text: str) -> list[str]:
    """Blocks that nobody could run: fences without a language, and blocks that are only indented."""
    lines = text.splitlines()
    found = [f"line {block.line}: the fence names no language" for block in blocks_in(text) if not block.language]
    fenced = {n for block in blocks_in(text) for n in range(block.line, block.line + block.text.count("\n") + 2)}
    is_inside = False
    for number, line in enumerate(lines, 1):
        if number in fenced or not line.strip():
            continue
        if not line.startswith("    "):
            is_inside = bool(_CONTAINER.match(line)) or (is_inside and line.startswith(" "))
        elif not is_inside and not lines[number - 2].strip():
            found.append(f"line {number}: an indented block; use a fence that names its language")
    return found
