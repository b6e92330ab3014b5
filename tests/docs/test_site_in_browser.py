"""The site on a narrow screen, in a real browser: no page is wider than it, and no command is cut off."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_site import CONFIG, built, listed
from tests.project.sources import PROJECT
from tests.support.browser import PROGRAM, chromium

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
                    await browser.look(NARROW, 900, dark=dark)
                    await browser.go(f"{url}/{page.removesuffix('.md').removesuffix('index')}")
                    await browser.until("document.body && document.readyState === 'complete'")
                    if found := await browser.run(f"JSON.stringify({TOO_WIDE})"):
                        wide[page] = found
            assert {page: found for page, found in wide.items() if found != "[]"} == {}
            await browser.go(f"{url}/")
            shown = "[...document.querySelectorAll('.md-content img')].filter(one => one.offsetWidth > 0).length"
            await browser.until(f"{shown} === 1")
