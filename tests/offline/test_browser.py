"""The page in a real browser, where there is one: the picture is there, and no text of a record has become more."""

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from callfuse.offline.report_page import as_html
from tests.offline.test_judging import run_of
from tests.offline.test_replay import replayed
from tests.offline.test_reports import hostile_run
from tests.support.axe import axe
from tests.support.browser import chromium

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), "")


@pytest.mark.skipif(not BROWSER, reason="no chromium here; on Debian: apt-get install chromium")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Cells have the size and the colours that make the picture; a hostile name runs nothing and loads nothing."""
    page = tmp_path / "report.html"
    text = as_html(replayed([run_of([["a"], ["b"], ["b"], ["b"]], success=False), hostile_run()])).decode()
    # The page itself allows no script: for the look at it, one is let in that says what the browser has made of it.
    probe = (
        "<script>addEventListener('load', () => { const cells = [...document.querySelectorAll('.strip b')];"
        " document.title = JSON.stringify([cells.length, document.images.length, document.scripts.length,"
        " cells.every(cell => cell.offsetWidth >= 14 && cell.offsetHeight >= 20),"
        " new Set(cells.map(cell => getComputedStyle(cell).backgroundColor)).size]); });</script></body>"
    )
    page.write_text(text.replace("style-src", "script-src 'unsafe-inline'; style-src", 1).replace("</body>", probe))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    ended = subprocess.run([BROWSER, *options, page.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"<title>(.*?)</title>", ended.stdout)
    assert found is not None
    assert unescape(found[1]) == "[8,0,1,true,3]"


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="no chromium here; on Debian: apt-get install chromium")
async def test_nobody_is_left_out(tmp_path: Path) -> None:
    """No rule of axe-core is broken, narrow or wide, light or dark."""
    page = tmp_path / "report.html"
    page.write_bytes(as_html(replayed([run_of([["a"], ["b"], ["b"], ["b"]], success=False)])))
    async with chromium(tmp_path) as browser:
        await browser.go(page.as_uri())
        for width, dark in ((1600, False), (400, True)):
            await browser.look(width, 900, dark=dark)
            assert await axe(browser) == []
            assert await browser.run("document.documentElement.scrollWidth <= innerWidth")
