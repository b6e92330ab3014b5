"""The rules of axe-core for pages: those of the package axe-core-python, or of the file that `CALLFUSE_AXE` names."""

import os
from importlib.resources import files
from pathlib import Path

from tests.support.browser import Browser


async def axe(browser: Browser) -> list[str]:
    """The rules that the page breaks."""
    if not await browser.run("'axe' in window"):
        file = os.environ.get("CALLFUSE_AXE") or str(files("axe_core_python").joinpath("axe.min.js"))
        await browser.run(_read(file) + "; true")
    told = await browser.run("axe.run().then((told) => [told.passes.length, told.violations.map((one) => one.id)])")
    assert told[0] > 10
    found: list[str] = told[1]
    return found


def _read(file: str) -> str:
    """A file's text."""
    return Path(file).read_text()
