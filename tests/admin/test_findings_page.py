"""The view of the findings in a real browser: how many loops, which, and all that is known of each."""

import re
from pathlib import Path

import pytest

from tests.admin.asking import PATH, Guarded
from tests.admin.test_browser import CHECKS, THREE, Loops, logged_in, pictures
from tests.support.axe import axe
from tests.support.browser import PROGRAM, Browser

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="no chromium here; on Debian: apt-get install chromium"),
    pytest.mark.slow,
]
ROWS = "[...document.querySelectorAll('#rows tr')].map((tr) => [...tr.cells].map((one) => one.innerText.trim()))"
SUMMARY = "document.querySelector('#summary').innerText"


async def choose(browser: Browser, field: str, value: str) -> None:
    """Choose a value in the form, as a person does."""
    await browser.run(
        f"(() => {{ const field = document.querySelector('#of-{field}'); field.value = {value!r};"
        " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def looping(path: Path) -> tuple[Loops, Guarded]:
    """A model that loops, whose findings are kept in a file."""
    loops = Loops()
    loops.go_on.set()
    config = {"tool_call_loop": {}, "findings": {"path": str(path)}}
    return loops, Guarded(config, vendor=loops.vendor())


async def test_how_many_loops_and_which(tmp_path: Path) -> None:
    """Rows, a filter, loops one by one, the order; a row opens what the live page shows of its call. Nobody is left
    out, narrow or wide, light or dark."""
    loops, guarded = looping(tmp_path / "findings.db")
    async with logged_in(guarded, tmp_path) as (browser, url):
        for kit in THREE:
            await loops.turn(url, kit, 2)
        await browser.run("document.querySelector('#views a[href=\"#findings\"]').click()")
        await browser.until(f"{SUMMARY} === '3 loops, 6 findings.'")
        assert await browser.run("document.querySelector('#sessions').checkVisibility()") is False
        rows = await browser.run(ROWS)
        assert [row[1:5] for row in rows[:2]] == [
            ["repeat", "search", "4 of 3", "block"],
            ["repeat", "search", "3 of 3", "steer It did the same again."],
        ]
        assert re.fullmatch(r"≈ \d+(\.\d)?", rows[1][7])
        await choose(browser, "by", "loop")
        await browser.until(f"{ROWS}.length === 3")
        assert (await browser.run(ROWS))[0][3:5] == ["4 (2 findings)", "steer, then block"]
        await choose(browser, "action", "steer")
        await browser.until(f"{SUMMARY} === '3 loops, 3 findings.'")
        assert "action=steer" in await browser.run("location.hash")
        assert "action=steer" in await browser.run("document.querySelector('#as-csv').href")
        await browser.run(
            "[...document.querySelectorAll('#heads button')].find((b) => b.innerText === 'Session').click()"
        )
        await browser.until("document.querySelector('[aria-sort]')?.innerText === 'Session'")
        names = [row[5] for row in await browser.run(ROWS)]
        assert names == sorted(names, reverse=True)
        await browser.run("(document.querySelector('#rows .name').focus(), document.activeElement.click())")
        await browser.until("document.querySelector('#call table')")
        said = await browser.run("document.querySelector('#details').innerText")
        for wanted in ("zebra crossing", "call 3 of search in a row", "[callfuse] This call was not run", "Reset the"):
            assert wanted in said
        for width, dark in ((1600, False), (1600, True), (400, False)):
            await browser.look(width, 1000, dark=dark)
            file = pictures(tmp_path) / f"findings-{width}-{'dark' if dark else 'light'}.png"
            file.write_bytes(await browser.picture())
            assert await browser.run(CHECKS) == []
            assert await axe(browser) == []
        await browser.run("document.querySelector('#close').click()")
        assert await browser.run("document.activeElement.matches('#rows .name')")


async def test_after_a_restart_all_is_there(tmp_path: Path) -> None:
    """The live page knows nothing of the session, but its findings are listed, and each shows what was kept."""
    loops, guarded = looping(tmp_path / "findings.db")
    async with logged_in(guarded, tmp_path / "before") as (browser, url):
        await loops.turn(url, THREE[0], 2)
        await browser.until("document.querySelectorAll('#list > li').length === 1")
    guarded.admin.close()
    _, later = looping(tmp_path / "findings.db")
    async with logged_in(later, tmp_path / "after") as (browser, url):
        assert await browser.run("document.querySelectorAll('#list > li').length") == 0
        await browser.go(f"{url}{PATH}/#findings?range=all&by=loop")
        await browser.until(f"{SUMMARY} === '1 loop, 2 findings.'")
        await browser.run("document.querySelector('#rows .name').click()")
        await browser.until("document.querySelector('#call table')")
        said = await browser.run("document.querySelector('#details').innerText")
        for wanted in ("zebra crossing", "call 4 of search in a row", "[callfuse] Stopped a tool call loop"):
            assert wanted in said
        assert await axe(browser) == []
    later.admin.close()


async def test_a_tool_leads_to_its_findings(tmp_path: Path) -> None:
    """From the details of a call, and from a row."""
    loops, guarded = looping(tmp_path / "findings.db")
    async with logged_in(guarded, tmp_path) as (browser, url):
        await loops.turn(url, THREE[0], 2)
        await browser.until("document.querySelector('#list .bead')")
        await browser.run("document.querySelector('#list .bead').click()")
        await browser.until("document.querySelector('#call .links a')")
        await browser.run("document.querySelector('#call .links a').click()")
        await browser.until(f"{SUMMARY} === '1 loop, 2 findings.'")
        assert await browser.run("document.querySelector('#of-tool').value") == "search"
        assert await browser.run("document.querySelector('#of-range').value") == "all"
        await browser.run("document.querySelector('#views a').click()")
        await browser.until("document.querySelector('#sessions').checkVisibility()")


async def test_a_call_is_let_pass_by_a_button(tmp_path: Path) -> None:
    """Beside "This was no loop": the next request gets its call; another button takes that back. The lines for the
    settings file are shown."""
    loops, guarded = looping(tmp_path / "findings.db")
    click = "[...document.querySelectorAll('#details button')].find((one) => /{}/.test(one.innerText)).click()"
    async with logged_in(guarded, tmp_path) as (browser, url):
        assert b'"tool_calls"' not in await loops.turn(url, THREE[0], 2)
        await browser.until("document.querySelector('#list .bead.block')")
        await browser.run("document.querySelector('#list .bead.block').click()")
        await browser.until("/This was no loop.*Let this call pass/s.test(document.querySelector('#call').innerText)")
        await browser.run(click.format("pass always"))
        await browser.until(
            "/\"search\": .mode: observe/.test(document.querySelector('#call .feedback pre').innerText)"
        )
        assert await axe(browser) == []
        await browser.run(click.format("Let this call pass"))
        await browser.until("/a call of search/.test(document.querySelector('#session').innerText)")
        assert b'"tool_calls"' in await loops.turn(url, THREE[0], 2)
        await browser.run(click.format("Take it back"))
        await browser.until("!/a call of search/.test(document.querySelector('#session').innerText)")
        assert b'"tool_calls"' not in await loops.turn(url, THREE[0], 2)
