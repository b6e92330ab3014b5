"""The site in a real browser: on a narrow screen nothing is cut off, and everybody can use every page."""

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_site import CONFIG, built, listed
from tests.project.sources import PROJECT
from tests.support.axe import axe
from tests.support.browser import PROGRAM, Browser, chromium
from tests.support.examples import some

NARROW = 400
FIRST = ("Home", "Install", "Tutorial", "Start", "Tasks")
"""The entries of the navigation that a reader sees first, maybe on a telephone."""
TOO_WIDE = """[...document.querySelectorAll(
    '.md-content :is(.language-sh, .language-text, .language-console) code, html'
)].filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.slice(0, 60))"""
"""An expression: what is wider than its place."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="no chromium here; on Debian: apt-get install chromium"),
]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the standard library
        """Nothing."""


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def open_page(browser: Browser, url: str, page: str, width: int, *, dark: bool) -> None:
    """Show a page of the site in the colours that the screen asks for, once its scripts have run."""
    await browser.look(width, 900, dark=dark)
    await browser.go(f"{url}/{re.sub(r'(index|README)?[.]md$', '', page)}")
    scheme = "slate" if dark else "default"
    if await browser.run("document.body.dataset.mdColorScheme") != scheme:  # the page remembers the colours before
        await browser.run("localStorage.clear()")
        await browser.go(await browser.run("location.href"))
    assert await browser.run("document.body.dataset.mdColorScheme") == scheme
    await browser.run("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


@pytest.mark.timeout(300)
async def test_nothing_is_cut_off(tmp_path: Path) -> None:
    """On the pages that come first; Python may be scrolled. Each picture is shown in one colour."""
    entries = [entry for entry in CONFIG["nav"] if next(iter(entry)) in FIRST]
    assert len(entries) == len(FIRST)
    with hosted(built(tmp_path / "site", PROJECT / "docs")) as url:
        async with chromium(tmp_path) as browser:
            wide = {}
            for page in listed(entries):
                for dark in (False, True):
                    await open_page(browser, url, page, NARROW, dark=dark)
                    if found := await browser.run(f"JSON.stringify({TOO_WIDE})"):
                        wide[page] = found
            assert {page: found for page, found in wide.items() if found != "[]"} == {}
            await browser.go(f"{url}/")
            shown = "[...document.querySelectorAll('.md-content img')].filter(one => one.offsetWidth > 0).length"
            await browser.until(f"{shown} === 1")


@pytest.mark.timeout(600)
async def test_axe_finds_nothing(tmp_path: Path) -> None:
    """On any page, in either colour; what scrolls can be reached with the keyboard."""
    pages = [*listed(CONFIG["nav"])]
    with hosted(built(tmp_path / "site", PROJECT / "docs")) as url:
        async with chromium(tmp_path) as browser:
            found = {}
            for dark in (False, True):
                for page in [pages[at] for at in some(range(len(pages)), 12, 6 * dark)]:
                    await open_page(browser, url, page, 900, dark=dark)
                    if rules := await axe(browser):
                        found[page, dark] = rules
            assert found == {}
