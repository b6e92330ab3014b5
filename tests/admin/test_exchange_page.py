"""What the vendor sent beside what the client got, in a real browser: from a finding's details, as text alone."""

import re
from pathlib import Path

import pytest

from callfuse.testing import Answer, Call, ScriptedVendor
from tests.admin.asking import Guarded
from tests.admin.test_browser import CHECKS, THREE, Loops, logged_in, pictures
from tests.support.asgi import Message, Receive, Scope, Send
from tests.support.axe import axe
from tests.support.browser import PROGRAM, Browser

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="no chromium here; on Debian: apt-get install chromium"),
    pytest.mark.slow,
]
EVIL = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
OPEN = "[...document.querySelectorAll('#call button')].find((one) => /what the vendor sent/.test(one.innerText))"
SIDES = "[...document.querySelectorAll('#sides > section')].map((one) => one.innerText)"
MARKED = "[...document.querySelectorAll('#sides > section')].map((one) => one.querySelectorAll('mark').length > 0)"


def looping(text: str = "Let me look.", **admin: object) -> Guarded:
    """A model that says this and makes the agent's call again, whatever it is told, behind callfuse."""
    answer = Answer(text, [Call("search", {"query": "zebra crossing", "limit": 5})])
    return Guarded({"admin": {"keep_exchanges": True, **admin}}, vendor=ScriptedVendor(lambda _: answer))


async def show(browser: Browser, url: str) -> bytes:
    """Have a session loop, and open its call. Returns what the agent got."""
    body = await Loops().turn(url, THREE[0], 2)
    await browser.until("document.querySelector('#list .bead')")
    await browser.run("document.querySelector('#list .bead').click()")
    await browser.until("document.querySelector('#call table')")
    return body


async def test_before_and_after(tmp_path: Path) -> None:
    """A button in the details opens both sides: an answer for each time that the vendor was asked, the client's, and
    marks. Escape closes it and leaves the details. Nobody is left out, narrow or wide, light or dark."""
    guarded = looping()
    async with logged_in(guarded, tmp_path) as (browser, url):
        body = await show(browser, url)
        await browser.run(f"({OPEN}).click()")
        await browser.until("document.querySelectorAll('#sides pre').length === 3")
        vendor, client = await browser.run(SIDES)
        for wanted in ("What the vendor sent", "Answer 1 of 2", "Answer 2 of 2", "status 200", '"tool_calls"'):
            assert wanted in vendor
        assert "What the client got" in client
        assert '"tool_calls"' not in client
        assert "[callfuse] Stopped a tool call loop" in client
        assert await browser.run("document.querySelectorAll('#sides pre')[2].textContent") == body.decode()
        assert await browser.run(MARKED) == [True, True]
        for width, dark in ((1600, False), (1600, True), (400, False), (400, True)):
            await browser.look(width, 1000, dark=dark)
            file = pictures(tmp_path) / f"exchange-{width}-{'dark' if dark else 'light'}.png"
            file.write_bytes(await browser.picture())
            assert await browser.run(CHECKS) == []
            assert await axe(browser) == []
            assert await browser.run("document.querySelector('dialog').scrollWidth <= innerWidth")
        await browser.press("Escape")
        await browser.until("!document.querySelector('dialog').open")
        assert await browser.run("document.querySelector('#details').checkVisibility()")
        assert await browser.run("document.activeElement.closest('#details') !== null")


async def test_a_hostile_body_stays_text(tmp_path: Path) -> None:
    """HTML and scripts in what a vendor sends neither become elements nor run."""
    guarded = looping()
    vendor = guarded.vendor

    async def hostile(scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": f": {EVIL}\n\n".encode(), "more_body": True})

        await vendor(scope, receive, adding)

    guarded = Guarded({"admin": {"keep_exchanges": True}}, vendor=hostile)
    async with logged_in(guarded, tmp_path) as (browser, url):
        assert EVIL.encode() in await show(browser, url)
        await browser.run(f"({OPEN}).click()")
        await browser.until("document.querySelectorAll('#sides pre').length === 3")
        assert [EVIL in one for one in await browser.run(SIDES)] == [True, True]
        kinds = set(await browser.run("[...document.querySelectorAll('#sides pre *')].map((one) => one.tagName)"))
        assert kinds <= {"MARK", "SPAN"}
        assert await browser.run("[document.images.length, document.scripts.length, document.title]") == [
            0,
            1,
            "callfuse",
        ]


async def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    """Between the beginning and the end of a long answer."""
    guarded = looping("zebra " * 10_000, max_exchange_bytes=16_384)
    async with logged_in(guarded, tmp_path) as (browser, url):
        await show(browser, url)
        await browser.run(f"({OPEN}).click()")
        await browser.until("document.querySelector('#sides .gap')")
        said = await browser.run("document.querySelector('#sides .gap').innerText")
        assert re.fullmatch(r"[\d,]+ bytes left out", said)


async def test_it_is_not_offered_where_it_is_off(tmp_path: Path) -> None:
    """By default the details have no such button; turned off meanwhile, the dialog says so."""
    guarded = looping(keep_exchanges=False)
    async with logged_in(guarded, tmp_path) as (browser, url):
        await show(browser, url)
        assert not await browser.run(f"!!({OPEN})")
        guarded.fuse.configure({"admin": {"keep_exchanges": True}})
        await browser.press("Escape")
        await browser.run("document.querySelector('#list .bead').click()")
        await browser.until(OPEN)
        await browser.run(f"({OPEN}).click()")
        await browser.until("/was dropped to make room/.test(document.querySelector('#exchange-note').innerText)")
