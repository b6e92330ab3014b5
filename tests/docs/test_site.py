"""The site of `docs/` builds without a warning and by itself: every page is in it, and every link leads somewhere."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.docs import commands_page
from tests.docs.blocks import blocks_of
from tests.project.sources import PROJECT, document
from tests.project.test_building import METADATA

PAGES = sorted(path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.md"))
CONFIG: dict[str, Any] = yaml.safe_load(document("mkdocs.yml"))
NOT_LOADED = {"a", "link rel=canonical"}
"""What names an address without loading anything from it."""


class Page(HTMLParser):
    """What a built page leads to, what can be led to in it, and the text of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = {""}
        self.paragraphs: list[str] = []
        self._in_text = self._in_code = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep its addresses and names."""
        found = dict(attrs)
        kind = f"{tag} rel={found['rel']}" if tag == "link" and found.get("rel") else tag
        self.links += [(kind, value) for name in ("href", "src") if (value := found.get(name)) is not None]
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        self._in_code = self._in_code or tag == "code"
        if tag == "p":
            self._in_text = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        """The end of a paragraph, or of code in it."""
        self._in_code = self._in_code and tag != "code"
        self._in_text = self._in_text and tag != "p"

    def handle_data(self, data: str) -> None:
        """Keep the words of a paragraph, but for code."""
        if self._in_text and not self._in_code:
            self.paragraphs[-1] += data


def built(folder: Path, pages: Path) -> Path:
    """The site of a folder of pages; raises with what the builder says if it has anything to say."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(pages, folder / "docs")
    shutil.copy(PROJECT / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=os.environ, check=False)
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        raise RuntimeError(said)
    return folder / str(CONFIG["site_dir"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    return built(tmp_path_factory.mktemp("site"), PROJECT / "docs")


def listed(entries: Any) -> Iterator[str]:
    """Every page of the navigation, in its order."""
    for entry in entries:
        for part in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [part] if isinstance(part, str) else listed(part)


def broken(site: Path) -> list[str]:
    """The links, pictures and other files of all pages that are not there, or have no such anchor."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for _, address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (target in pages and parts.fragment not in pages[target].anchors):
                found.append(f"{path.relative_to(site)}: {address}")
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    """Nothing is written that nobody finds, and nothing is named that is not there."""
    assert sorted(listed(CONFIG["nav"])) == PAGES


def test_the_source_code_is_where_the_package_says() -> None:
    """The site leads to the repository of the package's metadata, and asks it for nothing."""
    urls = {one["link"] for one in CONFIG["extra"]["social"]}
    assert urls == {METADATA["project"]["urls"]["Source"]}
    assert "repo_url" not in CONFIG


@pytest.mark.slow
def test_every_link_leads_somewhere(site: Path) -> None:
    """Pages, their sections, pictures, scripts and styles: all of it is in the site."""
    assert broken(site) == []
    assert len(list(site.rglob("index.html"))) == len(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["[a](nowhere.md)", "[a](other.md#nowhere)", "![a](nowhere.png)", "[a](../src/)", "[a](#nowhere)"]
)
def test_a_link_to_nowhere_is_found(text: str, tmp_path: Path) -> None:
    """Whether the builder says so, or only the look at what it has built."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.md").write_text(f"# One\n\n{text}\n")
    (tmp_path / "pages/other.md").write_text("# Other\n")
    try:
        found = broken(built(tmp_path, tmp_path / "pages"))
    except RuntimeError as error:
        found = [str(error)]
    assert found


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """A reader's browser asks the site's own host only."""
    pages = [Page(path.read_text()) for path in site.rglob("*.html")]
    loaded = [(kind, address) for page in pages for kind, address in page.links if kind not in NOT_LOADED]
    assert [one for one in loaded if urlsplit(one[1]).netloc] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()), style


def left_over(site: Path) -> list[str]:
    """The paragraphs with Markdown in them that is not read as such."""
    return [
        f"{path.relative_to(site)}: {text.strip()[:80]}"
        for path in site.rglob("index.html")
        for text in Page(path.read_text()).paragraphs
        if re.search(r"^(?:[-*] |\d+\. |\|.*\||#+ |```)|\]\(", text.strip(), re.MULTILINE)
    ]


@pytest.mark.slow
def test_no_markdown_is_left(site: Path) -> None:
    """No list or table is one for another reader of Markdown only."""
    assert left_over(site) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Words:\n- one\n- two", "Words:\n1. one\n2. two", "| a | b |\n| 1 | 2 |"])
def test_markdown_that_is_left_is_found(text: str, tmp_path: Path) -> None:
    """A list right below a line is none for the builder; a table without its second line is none for anybody."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/index.md").write_text(f"# One\n\n{text}\n")
    assert left_over(built(tmp_path, tmp_path / "pages")) != []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    """Files of the source code are named by their paths, pages of the site are links."""
    text = re.sub(r"^```.*?^```", "", document(f"docs/{page}"), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:src|tests|examples|benchmarks|docs|asgi|guard)/[\w/.-]+?)(?:::\w+)?`", text)
    ours = [
        name if name.startswith(("src", "tests", "examples", "benchmarks", "docs")) else f"src/callfuse/{name}"
        for name in named
    ]
    assert [name for name in ours if not (PROJECT / name).exists()] == []
    if page != "settings.md":  # its table has the words of the settings themselves
        assert [name for name in named if name.startswith("docs/") and name.endswith(".md")] == []


def test_lines_of_hosts_are_of_their_pages() -> None:
    """What `docs/start/models.md` says to type for a host stands in the host's own page, whose lines are run."""
    lines = [line for block in blocks_of("docs/start/models.md") for line in block.text.splitlines()]
    for program, page in (("vllm serve", "vllm"), ("CONFIG_FILE_PATH", "litellm"), ("'litellm[proxy]'", "litellm")):
        [line] = [line for line in lines if program in line]
        assert line in document(f"docs/mount/{page}.md")


def test_the_page_of_commands_is_the_program_s() -> None:
    """It is written anew by `python -m tests.docs.commands_page`."""
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.page()


EMPTY_HEAD = re.compile(r"^\|(?:.*\|)? *\|.*\n\|(?: *:?-+:? *\|)+$", re.MULTILINE)
"""The head of a table in which a cell has no words."""


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}" for name in PAGES)])
def test_every_column_has_a_name(page: str) -> None:
    """A reader of a screen reader, or of a narrow screen, knows what a cell is."""
    text = re.sub(r"^```.*?^```", "", document(page), flags=re.MULTILINE | re.DOTALL)
    assert [found[0].splitlines()[0] for found in EMPTY_HEAD.finditer(text)] == []


@pytest.mark.parametrize(("head", "is_found"), [("| a | |", True), ("| | b |", True), ("| a | b |", False)])
def test_a_column_without_a_name_is_found(head: str, is_found: bool) -> None:
    """First or last."""
    assert bool(EMPTY_HEAD.search(f"{head}\n|---|---|\n| 1 | 2 |\n")) is is_found
