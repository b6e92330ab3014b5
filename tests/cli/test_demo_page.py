"""`callfuse demo --page` with a real browser: the loop is seen while it is caught, and the page stays up.

If `CALLFUSE_PICTURES` names a folder, pictures of the page are written to it. `page.png` and `page-dark.png` are
those of the README and the site, in `docs/`:

    CALLFUSE_PICTURES=docs python -m pytest tests/cli/test_demo_page.py -k picture
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from callfuse.cli import demo
from callfuse.demo.guests import GUESTS
from tests.cli.processes import CLEAN, PLAIN, callfuse
from tests.support.browser import PATIENCE_S, PROGRAM, Browser, chromium

WIDTH, HEIGHT = 960, 940
LARGEST = 120_000
"""Bytes of a picture."""
NAMES = {"page.png": False, "page-dark.png": True}
"""The pictures of the docs, and whether they have dark colours."""
DONE = (
    "document.querySelectorAll('#list .bead').length >= 24 && !document.querySelector('.bead.waiting:not(.legend *)')"
)
"""An expression: whether all agents have made most of their calls."""
in_browser = pytest.mark.skipif(not PROGRAM, reason="no chromium here; on Debian: apt-get install chromium")
pytestmark = pytest.mark.slow


class Running:
    """A demo that runs, and the link that it has opened."""

    def __init__(self, process: subprocess.Popen[str], file: Path) -> None:
        self.process = process
        self._file = file

    async def link(self) -> str:
        """The link, as soon as the demo has opened it."""
        async with asyncio.timeout(PATIENCE_S):
            while not (link := self._file.read_text().strip() if self._file.exists() else ""):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return link

    async def end(self) -> str:
        """Press Ctrl-C; what the demo has printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(self.process.communicate, timeout=PATIENCE_S)
        assert (self.process.returncode, err) == (0, "")
        return out


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """A demo whose browser is a program that only writes down what it is to open."""
    browser, opened = folder / "browser", folder / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o700)
    command = [sys.executable, "-m", "callfuse", "demo", "--page", "--seconds", "100", *options]
    pipe = subprocess.PIPE
    env = CLEAN | PLAIN | {"BROWSER": str(browser)}
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Running(process, opened)
        finally:
            process.terminate()


@asynccontextmanager
async def watched(folder: Path, *options: str) -> AsyncIterator[tuple[Running, Browser]]:
    """A demo, and a browser that has followed its link."""
    with running(folder, *options) as demo_:
        link = await demo_.link()
        async with chromium(folder) as browser:
            await browser.look(WIDTH, HEIGHT)
            await browser.go(link)
            yield demo_, browser
            assert browser.complaints == []


def beads(kind: str) -> str:
    """An expression: the number of beads of a kind."""
    return f"document.querySelectorAll('#list .bead.{kind}').length"


@in_browser
async def test_a_loop_is_seen_in_pictures(tmp_path: Path) -> None:
    """The link lets the browser in, once and with no code left in the address; calls, hold, steer and block appear, the
    page stays up when the story is over, and Ctrl-C ends it."""
    async with watched(tmp_path, "--stubborn") as (shown, browser):
        await browser.until(f"{beads('c0')} > 0")
        address = await browser.run("location.href")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/_callfuse/", address)
        await browser.until(f"{beads('waiting')} > 0")
        await browser.until(f"{beads('steer.held')} > 0 && {beads('block')} > 0")
        await browser.until(f"document.querySelectorAll('#list > li').length === {1 + len(GUESTS)}")
        async with aiohttp.ClientSession() as client, client.get(await shown.link()) as again:
            assert again.status == 401
        printed = await shown.end()
    token = re.search(rf"{re.escape(address)} \(token: (\S+)\)", printed)
    assert token
    assert token[1] not in await shown.link()
    assert "tool calls run" in printed
    assert "The live page stays up" in printed


AT_ONCE = """
from callfuse.demo.page import Page
Page.__init__.__kwdefaults__["pause_s"] = 0.0
from callfuse.cli.demo import run_demo
raise SystemExit(run_demo(page=True, chunk_delay_s=0.0))
"""
"""The demo with its page, which leaves nobody time to watch."""


def test_where_no_browser_can_be_opened(tmp_path: Path) -> None:
    """Its address and token are printed. Where nobody sits at a terminal the page does not stay."""
    nowhere = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "PATH": str(tmp_path)}
    ended = callfuse(code=AT_ONCE, **nowhere)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.search(r"No browser can be opened here; the live page is at: http://\S+/_callfuse/ \(token", ended.stdout)
    assert "stays up" not in ended.stdout


def test_seconds_are_those_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, or with a wrong number, they are an error."""
    assert demo.run_demo(seconds=3) == 2
    assert demo.run_demo(page=True, seconds=-1) == 2
    assert capsys.readouterr().err.count("use it with --page, and 0 or more") == 2


def pictures(tmp_path: Path) -> Path:
    """The folder for them."""
    folder = Path(os.environ.get("CALLFUSE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@in_browser
async def test_a_picture_for_the_readme(tmp_path: Path) -> None:
    """All agents of the demo, and one call with its finding; it is small enough."""
    folder = pictures(tmp_path)
    async with watched(tmp_path) as (shown, browser):
        await browser.until(f"{beads('steer')} > 1 && {beads('block')} > 0 && {beads('warn')} > 0")
        await browser.until(DONE)
        await browser.send("Emulation.setScrollbarsHidden", hidden=True)
        for name, is_dark in NAMES.items():
            for height in (HEIGHT - 1, HEIGHT):  # a change of size makes room where the scroll bar was
                await browser.look(WIDTH, height, dark=is_dark)
            await browser.until("matchMedia('(prefers-color-scheme: dark)').matches === " + str(is_dark).lower())
            (folder / name).write_bytes(await browser.picture())
        await shown.end()
    for name in NAMES:
        assert 5_000 < (folder / name).stat().st_size <= LARGEST
