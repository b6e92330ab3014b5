"""The pages in a real browser, where there is one: a form lets it in, a loop is seen while it happens, by anybody.

Pictures of the live page are written to the folder that `CALLFUSE_PICTURES` names, else to a temporary one. The rules
of axe-core are run over it.
"""

import asyncio
import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from callfuse.conversations.ledger import Closable, Ledger
from callfuse.model import ToolCall
from callfuse.observe import events, feed
from callfuse.observe.bus import Bus
from callfuse.observe.events import Where
from callfuse.observe.pages import page_of
from callfuse.stores import open_ledger
from callfuse.testing import Answer, ScriptedVendor, VendorRequest, looping_model
from tests.admin.asking import PATH, TOKEN, Guarded
from tests.admin.test_settings import HOSTILE, SESSION, hostile
from tests.support.asgi import Receive, Scope, Send
from tests.support.axe import axe
from tests.support.browser import PROGRAM, Browser, chromium
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask
from tests.support.plain import spin
from tests.support.redis import program, running
from tests.support.serving import serve

THREE = [kit for kit in KITS if kit.name in ("openai-chat", "anthropic", "openai-responses")]
IS_LIVE = "document.querySelector('#state')?.className === 'live'"
DETAILS = (
    *("zebra crossing", "call 3 of search in a row", "[callfuse] This call was not run", "max_repeats", "default"),
    *("Next call: A, search, the same again", "tool-loop-mode", "Reset the fuse"),
)
"""What the details of a steered call say, among other things."""
LEGEND = ("held", "observe", "warn", "steer", "block", "allow", "blown", "waiting")
"""The signs of beads."""
CHECKS = """(() => {
  const found = [];
  const name = (one) => one.getAttribute('aria-label') || one.innerText.trim() || one.title
    || [...(one.labels ?? [])].map((label) => label.innerText).join(' ');
  const shown = (one) => one.checkVisibility();
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const back = (one) => { for (; one; one = one.parentElement) {
    const colour = rgb(getComputedStyle(one).backgroundColor);
    if (colour[3] !== 0) return colour; } return [255, 255, 255]; };
  for (const one of document.querySelectorAll('button, input, select, a, [role=toolbar], [role=img], nav, aside')) {
    const named = name(one) || one.getAttribute('aria-labelledby');
    if (shown(one) && !named) found.push(`no name: ${one.outerHTML.slice(0, 90)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
  if (new Set(ids).size < ids.length) found.push('an id stands twice');
  for (const one of document.querySelectorAll('[aria-labelledby], [aria-describedby]')) {
    const id = one.getAttribute('aria-labelledby') ?? one.getAttribute('aria-describedby');
    if (!document.getElementById(id)) found.push(`no such id: ${id}`);
  }
  let level = 0;
  for (const one of [...document.querySelectorAll('h1, h2, h3, h4')].filter(shown)) {
    if (+one.tagName[1] > level + 1) found.push(`heading skips a level: ${one.innerText}`);
    level = +one.tagName[1];
  }
  for (const one of document.querySelectorAll('body *')) {
    const text = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!text || !shown(one) || one.disabled || one.closest('.unseen, .skip')) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(back(one))].sort((x, y) => y - x);
    const size = parseFloat(getComputedStyle(one).fontSize);
    const contrast = (a + .05) / (b + .05);
    if (contrast < (size >= 24 ? 3 : 4.5)) found.push(`contrast ${contrast}: ${one.innerText}`);
  }
  for (const one of document.querySelectorAll('button, input')) {
    const box = one.getBoundingClientRect();
    if (shown(one) && Math.min(box.width, box.height) < 20) found.push(`small: ${one.outerHTML.slice(0, 90)}`);
  }
  for (const bar of document.querySelectorAll('[role=toolbar]')) {
    const stops = bar.querySelectorAll('button[tabindex="0"]').length;
    if (bar.querySelector('button') && stops !== 1) found.push(`${stops} stops in a lane`);
  }
  if (document.querySelectorAll('main').length !== 1) found.push('not one main');
  if (document.documentElement.scrollWidth > innerWidth) found.push('wider than the screen');
  return found;
})()"""
"""Our own checks of what the page is for everyone: names, ids, headings, contrast, sizes, stops of the tab key."""

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="no chromium here; on Debian: apt-get install chromium"),
    pytest.mark.slow,
]


class Loops:
    """A model that never changes; asked again, it thinks until `go_on` is set. An agent for it in any dialect."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self._model = looping_model("search", {"query": "zebra crossing", "limit": 5}, stubborn=True)

    async def __call__(self, request: VendorRequest) -> Answer:
        """The script of the vendor."""
        if request.guidance:
            await self.go_on.wait()
        return self._model(request)

    def vendor(self) -> ScriptedVendor:
        """Its server."""
        return ScriptedVendor(self)

    def guarded(self, store: Ledger | None = None, **settings: Any) -> Guarded:
        """It, behind callfuse."""
        return Guarded({"tool_call_loop": settings}, vendor=self.vendor(), store=store)

    async def turn(self, url: str, kit: DialectKit, times: int) -> bytes:
        """One request of an agent that has made the call so many times."""
        asked = ask(kit, spin(times), stream=True)
        headers = {name.decode(): value.decode() for name, value in asked.headers} | {"x-session-id": f"of-{kit.name}"}
        target = f"{url}{asked.path}" + (f"?{asked.query.decode()}" if asked.query else "")
        async with aiohttp.ClientSession() as client, client.post(target, data=asked.body, headers=headers) as answer:
            return await answer.read()


@asynccontextmanager
async def logged_in(
    guarded: Guarded, folder: Path, *options: str, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Browser, str]]:
    """A browser on the live page, let in by its form, and the URL of the server."""
    rules = f"--host-resolver-rules=MAP {host} 127.0.0.1"
    async with serve(guarded.app, interface="asgi3") as url, chromium(folder, rules, *options) as browser:
        await browser.look(1600, 1000)
        await browser.go(url.replace("127.0.0.1", host) + PATH)
        await browser.run(
            f"(document.querySelector('#token').value = {TOKEN!r}, document.querySelector('button').click())"
        )
        await browser.until(IS_LIVE)
        yield browser, url
        assert browser.complaints == []
        ours = re.compile(rf"http://({re.escape(host)}|127\.0\.0\.1):\d+{PATH}")
        assert [one for one in browser.requests if not ours.match(one)] == []


def pictures(tmp_path: Path) -> Path:
    """The folder for them."""
    folder = Path(os.environ.get("CALLFUSE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def beads(kit: DialectKit, kind: str) -> str:
    """An expression: how many beads of a kind the session of a dialect has."""
    return (
        f"[...document.querySelectorAll('#list > li')].find((one) => one.dataset.key === 'of-{kit.name}')"
        f"?.querySelectorAll('.bead.{kind}').length"
    )


async def test_a_loop_is_seen_while_it_happens(tmp_path: Path) -> None:
    """In three dialects at once: calls, then a hold that goes on, then steer and block, with all the details; pictures
    of it, in light and dark, narrow and wide, in which nobody is left out."""
    loops = Loops()
    async with logged_in(loops.guarded(), tmp_path) as (browser, url):
        for kit in THREE:
            for times in range(2):
                await loops.turn(url, kit, times)
            await browser.until(f"{beads(kit, 'c0')} === 2")
        third = [asyncio.create_task(loops.turn(url, kit, 2)) for kit in THREE]
        for kit in THREE:
            await browser.until(f"{beads(kit, 'steer')} === 1 && {beads(kit, 'waiting')} === 1")
        loops.go_on.set()
        await asyncio.gather(*third)
        for kit in THREE:
            await browser.until(f"{beads(kit, 'block')} === 1 && {beads(kit, 'held')} >= 1")
            assert await browser.run(beads(kit, "waiting")) == 0
        await browser.run("document.querySelector('.bead.steer:not(.legend *)').click()")
        await browser.until("document.querySelector('#call table')")
        said = await browser.run("document.querySelector('#details').innerText")
        for wanted in DETAILS:
            assert wanted in said
        assert await browser.run("document.querySelector('#call a').href") == page_of("repeat")
        await look_at_all(browser, pictures(tmp_path))


async def look_at_all(browser: Browser, folder: Path) -> None:
    """Take the pictures, with the details open and closed, and check each."""
    for details in ("details", "list"):
        for width, height in ((1600, 1000), (400, 800)):
            for dark in (False, True):
                await browser.look(width, height, dark=dark)
                await browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                file = folder / f"{details}-{width}-{'dark' if dark else 'light'}.png"
                file.write_bytes(await browser.picture())
                assert await browser.run(CHECKS) == [], file.name
                assert await axe(browser) == [], file.name
        await browser.run("document.querySelector('#close').click()")


async def test_a_page_that_never_hears_silence_is_drawn(tmp_path: Path) -> None:
    """A busy server has news ten times a second, without end: the page does not wait for a pause between them."""
    guarded = Loops().guarded()

    async def emit() -> None:
        while True:
            where = Where("busy", "x-session-id", "main", "gpt-4o", "openai", "openai-chat")
            guarded.fuse.bus.emit(events.CallSeen(where, ToolCall("call_1", "search", "{}"), "none"))
            await asyncio.sleep(0.05)

    async with logged_in(guarded, tmp_path) as (browser, _):
        await browser.until("document.querySelector('#state').innerText === 'Live'")
        news = asyncio.create_task(emit())
        await browser.until("document.querySelectorAll('#list .bead').length > 0")
        shown = await browser.run("document.querySelectorAll('#list .bead').length")
        await browser.until(f"document.querySelectorAll('#list .bead').length > {shown}")
        news.cancel()


async def test_a_page_of_the_vendor_has_nothing_of_ours(tmp_path: Path) -> None:
    """Its script, in our own origin, could else ask for whatever the admin page shows, and change it."""

    async def vendor(scope: Scope, _: Receive, send: Send) -> None:
        page = b"<title>asked</title><script>fetch('%s/sessions').then((it) => document.title = it.status)</script>"
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": page % PATH.encode()})

    async with serve(Guarded(vendor=vendor).app, interface="asgi3") as url, chromium(tmp_path) as browser:
        await browser.go(url + PATH)
        await browser.run(
            f"(document.querySelector('#token').value = {TOKEN!r}, document.querySelector('button').click())"
        )
        await browser.until(IS_LIVE)
        await browser.go(f"{url}/v1/models")
        await asyncio.sleep(0.5)
        assert await browser.run("[document.title, self.origin]") == ["asked", "null"]


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    """The store of each kind."""
    if request.param == "redis" and program() is None:
        pytest.skip("needs redis-server")
    with contextmanager(running)() if request.param == "redis" else nullcontext() as server:
        url = "memory://" if server is None else server.url
        ledger = open_ledger(url, max_lanes=100, ttl_s=3000, timeout_s=20, bus=Bus())
        yield ledger
        if isinstance(ledger, Closable):
            await ledger.aclose()


async def test_a_setting_changed_on_the_page_is_obeyed_by_the_next_request(tmp_path: Path, store: Ledger) -> None:
    """Typed into its field; a wrong value is said to be wrong, and a blown fuse is reset by a button. So with a store
    that workers share."""
    loops = Loops()
    loops.go_on.set()
    kit = THREE[0]
    guarded = loops.guarded(store, mode="block", blow_after=2, detectors={"known_pairs": False})
    async with logged_in(guarded, tmp_path) as (browser, url):
        for times in (2, 3, 4, 5):
            assert b'"tool_calls"' not in await loops.turn(url, kit, times)
        await browser.until("document.querySelector('.bead.blown') && document.querySelector('h3 .flag')")
        await browser.run("document.querySelector('#list .name').click()")
        await browser.until("document.querySelector('#set-tool-loop-mode')")
        await browser.run(
            "[...document.querySelectorAll('#session button')].find((one) => /Reset/.test(one.innerText)).click()"
        )
        await browser.until("!document.querySelector('h3 .flag')")
        await browser.type("#set-tool-loop-mode", "brake")
        await browser.press("Enter")
        await browser.until(
            "/brake.*use observe, warn/.test(document.querySelector('#set-tool-loop-mode-use').innerText)"
        )
        await browser.type("#set-tool-loop-mode", "observe")
        await browser.press("Enter")
        await browser.until("/next request/.test(document.querySelector('#set-tool-loop-mode-use').innerText)")
        for times in (6, 7, 8):  # what came before the reset is no evidence
            assert b'"tool_calls"' in await loops.turn(url, kit, times)
        await browser.until(f"{beads(kit, 'observe')} > 0")


async def test_the_page_goes_on_when_the_server_restarts(tmp_path: Path) -> None:
    """It says that nobody answers, and then shows what the new process knows; the cookie is still good."""
    loops = Loops()
    kit = THREE[0]
    async with chromium(tmp_path) as browser:
        async with serve(loops.guarded().app, interface="asgi3") as url:
            await browser.go(url + PATH)
            await browser.run(
                f"(document.querySelector('#token').value = {TOKEN!r}, document.querySelector('button').click())"
            )
            await browser.until(IS_LIVE)
            await loops.turn(url, kit, 0)
            await browser.until(f"{beads(kit, 'c0')} === 1")
            await browser.run("document.querySelector('#list .bead').click()")
            await browser.until("!document.querySelector('#details').hidden")
        await browser.until("document.querySelector('#state').className === 'lost'")
        port = int(url.rpartition(":")[2])
        async with serve(loops.guarded().app, at_port=port, interface="asgi3"):
            await browser.until(f"{IS_LIVE} && !document.querySelector('#list > li')")
            await loops.turn(url, THREE[1], 0)
            await browser.until(f"{beads(THREE[1], 'c0')} === 1")
            assert await browser.run("document.querySelectorAll('#list > li').length") == 1
        assert browser.complaints == []


async def test_two_workers_that_answer_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a Redis, and nothing flickers: no bead and no session that is there goes, while both bring new ones,
    however seldom they read. Where the store is down, the page says so."""
    if program() is None:
        pytest.skip("needs redis-server")
    monkeypatch.setattr(feed, "PAUSE_S", 1.0)
    for redis in running():
        loops = Loops()
        pair = [Guarded({"store": redis.url}, vendor=loops.vendor()) for _ in range(2)]
        pair[0].app = InTurns([one.app for one in pair])
        async with logged_in(pair[0], tmp_path) as (browser, url):
            await browser.run(WATCH_WHAT_GOES)
            for times in range(3):
                for kit in THREE:
                    turn = asyncio.create_task(loops.turn(url, kit, times))
                    loops.go_on.set()
                    await turn
                    await browser.until(f"{beads(kit, 'c0')} > {times}")
            await browser.until(" && ".join(f"{beads(kit, 'steer')} === 1" for kit in THREE))
            await browser.run("document.querySelector('#list .bead.steer').click()")
            await browser.until("document.querySelector('#call table')")
            await asyncio.sleep(2)  # some more polls of both
            assert await browser.run("window.gone") == []
            redis.end()
            await loops.turn(url, THREE[0], 0)
            await browser.until("/the store is down/.test(document.querySelector('#state').innerText)")
        for one in pair:
            assert isinstance(one.fuse.ledger, Closable)
            await one.fuse.ledger.aclose()


WATCH_WHAT_GOES = """(() => {
  window.gone = [];
  const isShown = (one) => one.matches?.('.bead:not(.waiting), #list > li');
  const note = (changes) => setTimeout(() => changes.forEach((change) => change.removedNodes.forEach((one) => {
    if (one.nodeType === 1 && isShown(one) && !one.isConnected) window.gone.push(one.outerHTML.slice(0, 99));
  })));
  new MutationObserver(note).observe(document.querySelector('#list'), { childList: true, subtree: true });
})()"""
"""Note in a page which beads and sessions go, and do not come back at once, as those that are moved do."""


class InTurns:
    """Apps that answer one request for a path after another in turns, as workers may."""

    def __init__(self, apps: list[Any]) -> None:
        self._apps: defaultdict[str, Iterator[Any]] = defaultdict(lambda: itertools.cycle(apps))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        await next(self._apps[scope.get("path", "")])(scope, receive, send)


async def test_events_make_the_page_ask_at_once(tmp_path: Path) -> None:
    """Where the server has a feed, the page does not poll; where that ends, it does again."""
    guarded = Guarded()
    beside = Beside(guarded)
    guarded.app = beside
    async with logged_in(guarded, tmp_path) as (browser, _):
        await browser.until("document.querySelector('#state').innerText === 'Live'")
        for number in range(3):
            call(guarded, f"session-{number}", 1)
            await beside.tell(f"event: call\ndata: {{}}\nid: {number}\n\n")
            await browser.until(f"document.querySelectorAll('#list > li').length === {number + 1}", within_s=4)
        await beside.tell("")
        await browser.until("document.querySelector('#state').innerText === 'Live (polling)'")
        call(guarded, "session-3", 1)
        await browser.until("document.querySelectorAll('#list > li').length === 4")


async def test_feedback_is_sent(tmp_path: Path) -> None:
    """By a button beside the finding; no answer to the page is told of as a failure."""
    loops = Loops()
    guarded = loops.guarded(mode="block")
    guarded.app = beside = Beside(guarded)
    button = "[...document.querySelectorAll('#call .feedback button')]"
    async with logged_in(guarded, tmp_path) as (browser, url):
        await loops.turn(url, THREE[0], 2)
        await open_block(browser)
        await browser.until(f"{button}[0]?.innerText === 'This was no loop'")
        assert [one for one in browser.failures if PATH in one] == []
        await browser.run(f"{button}[0].click()")
        await browser.until("/false positive/.test(document.querySelector('#call .feedback').innerText)")
        (said,) = beside.said
        assert said == {"finding": await browser.run("document.querySelector('#call dl:last-of-type code').innerText"),
                        "kind": "false_positive"}  # fmt: skip


async def open_block(browser: Browser) -> None:
    """Show the call that was blocked."""
    await browser.until("document.querySelector('#list .block')")
    await browser.run("document.querySelector('#list .block').click()")
    await browser.until("document.querySelector('#call table')")


class Beside:
    """What the page finds beside its own endpoints: a feed of events, and feedback that is taken."""

    def __init__(self, guarded: Guarded) -> None:
        self.said: list[Any] = []
        self._app = guarded.app
        self._told: asyncio.Queue[str] = asyncio.Queue()
        self._ended = False

    async def tell(self, frame: str) -> None:
        """Send a frame of the feed; an empty one ends it, for good."""
        await self._told.put(frame)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] != "http" or not scope["path"].endswith(("/events", "/feedback")):
            await self._app(scope, receive, send)
        elif scope["path"].endswith("/feedback"):
            self.said.append(json.loads((await receive())["body"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
        else:
            await self._feed(send)

    async def _feed(self, send: Send) -> None:
        status = 404 if self._ended else 200
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while not self._ended:
            frame = await self._told.get()
            self._ended = not frame
            await send({"type": "http.response.body", "body": frame.encode(), "more_body": not self._ended})
        if status == 404:
            await send({"type": "http.response.body", "body": b""})


async def test_the_keyboard_alone_is_enough(tmp_path: Path) -> None:
    """One stop of the tab key a lane; arrows go on, Enter opens, Escape closes and comes back. What is drawn anew
    meanwhile takes the focus from nobody."""
    guarded = Guarded()
    async with logged_in(guarded, tmp_path) as (browser, _):
        for session in ("one", "two"):
            call(guarded, session, *range(3))
        await browser.until("document.querySelectorAll('#list .bead').length === 6")
        await browser.run("document.querySelector('#list .bead[tabindex=\"0\"]').focus()")
        await browser.press("ArrowLeft", "ArrowDown", "ArrowLeft")
        assert await focused(browser) == "B: search"
        call(guarded, "one", 7)
        await browser.until("document.querySelectorAll('#list .bead').length === 7")
        assert await focused(browser) == "B: search"
        await browser.press("Enter")
        await browser.until("document.activeElement.id === 'details-title'")
        await browser.press("Escape")
        assert await focused(browser) == "B: search"
        assert await browser.run("document.querySelector('#details').hidden")


async def focused(browser: Browser) -> str:
    """The name of what has the focus."""
    name: str = await browser.run("document.activeElement.getAttribute('aria-label')")
    return name


def call(guarded: Guarded, session: str, *arguments: object, tool: str = "search", model: str = "gpt") -> None:
    """A session makes calls."""
    where = Where(session, "x-session-id", f"lane-{session}", model, "openai", "openai-chat")
    for value in arguments:
        one = ToolCall("", tool, json.dumps({"a": value}))
        guarded.fuse.bus.emit(events.CallSeen(where, one, "none"))


async def test_foreign_texts_stay_text(tmp_path: Path) -> None:
    """Of sessions, tools, arguments and models: none becomes an element, and none runs."""
    guarded = Guarded()
    async with logged_in(guarded, tmp_path) as (browser, _):
        evil = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
        for text in (evil, HOSTILE, "__proto__", "constructor", '"><svg onload=alert(1)>'):
            call(guarded, text, text, tool=text, model=text)
        await browser.until("document.querySelectorAll('#list > li').length === 5")
        for at in range(5):
            await browser.run(f"document.querySelectorAll('#list .bead')[{at}].click()")
            await browser.until("document.querySelector('#call pre')")
        assert await browser.run("[document.images.length, document.scripts.length, document.title]") == [
            0,
            1,
            "callfuse",
        ]
        assert await browser.run("document.querySelectorAll('#list svg, #details svg, iframe').length") == 0
        assert evil in await browser.run("document.body.innerText")
        await browser.type("#search", evil)
        await browser.until("document.querySelectorAll('#list > li').length === 1")


async def test_many_sessions_stay_fluid(tmp_path: Path) -> None:
    """Of 5,000 a page holds the newest; an answer without news changes nothing, one with news only its session."""
    guarded = Guarded()
    for number in range(5000):
        call(guarded, f"session-{number:04}", *range(number % 5 + 1))
    async with logged_in(guarded, tmp_path) as (browser, _):
        await browser.until("document.querySelectorAll('#list > li').length === 20")
        assert await browser.run("document.querySelectorAll('*').length") < 600
        assert await browser.run("document.querySelector('#place').innerText") == "1 to 20 of 5,000"
        watch = """(window.changed = new Set(), new MutationObserver((all) => all.forEach((one) => {
          if (!one.target.parentElement?.closest('.meta') && !one.target.closest?.('.meta'))
            window.changed.add(one.target.closest('#list > li')?.dataset.key) }))
          .observe(document.querySelector('#list'), { childList: true, subtree: true, attributes: true }))"""
        await browser.run(f"({watch}, 0)")
        asked = "performance.getEntriesByType('resource').filter((one) => /activity/.test(one.name)).length"
        await browser.until(f"{asked} >= {await browser.run(asked) + 3}")
        assert await browser.run("[...window.changed]") == []
        call(guarded, "session-4990", "new")
        await browser.until("document.querySelector('#list > li').dataset.key === 'session-4990'")
        assert set(await browser.run("[...window.changed]")) <= {"session-4990", None}
        await browser.run("document.querySelector('#older').click()")
        await browser.until("document.querySelector('#place').innerText.startsWith('21 to 40')")
        await browser.type("#search", "session-0042")
        await browser.until("document.querySelectorAll('#list > li').length === 1")


@pytest.mark.parametrize("host", ["127.0.0.1", "here.test"])
async def test_a_person_types_the_token(host: str, tmp_path: Path) -> None:
    """Into the form, once: the page without script is there, its cookie is no script's, and its own style holds. Where
    a form is from the browser says in one header to a host that it trusts, and in another to any other host."""
    guarded = Guarded({"tool_call_loop": {"mode": "warn"}})
    await guarded.type("!/set(tool-loop-ttl=20)", SESSION)
    async with logged_in(guarded, tmp_path, host=host) as (browser, url):
        await browser.go(f"{url.replace('127.0.0.1', host)}{PATH}/plain")
        told = await browser.run(PLAIN)
    assert told["cookie"] == ""
    assert (told["alerts"], told["elements"]) == (0, [0, 0])
    assert told["given"] == ["tool_call_loop.mode", "warn", "server: keyword"]
    assert told["bold"] == "600"
    fields = ["Model, with its backend", "Tool", "Session, as the log names it"]
    assert told["labels"] == [*fields, "Changed settings only"]
    assert told["colours"] == ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]
    assert (told["wide"], told["stacked"]) == (True, False)


async def test_on_a_phone_in_the_dark(tmp_path: Path) -> None:
    """Nothing is wider than the screen, whatever names there are, and none of them has become an element."""
    async with logged_in(await hostile(), tmp_path) as (browser, url):
        await browser.look(400, 900, dark=True)
        await browser.go(f"{url}{PATH}/plain")
        told = await browser.run(PLAIN)
    assert told["elements"] == [0, 0]
    assert (told["wide"], told["stacked"]) == (True, True)
    assert told["colours"] == ["rgb(230, 237, 243)", "rgb(13, 17, 23)"]


PLAIN = """(() => {
  const style = (element) => getComputedStyle(element);
  const row = document.querySelector('tr.given');
  return {
    cookie: document.cookie, alerts: document.querySelectorAll('[role=alert]').length,
    elements: [document.images.length, document.scripts.length],
    given: row && [...row.cells].map((cell) => cell.innerText.trim()), bold: row && style(row.cells[1]).fontWeight,
    labels: [...document.querySelectorAll('input')].map((one) => one.labels[0].innerText.trim()),
    wide: document.documentElement.scrollWidth <= innerWidth,
    stacked: style(document.querySelector('tbody tr')).display === 'block',
    colours: [style(document.body).color, style(document.body).backgroundColor],
  };
})()"""
"""What a browser sees of the page without script."""


async def test_the_page_fits_its_screen(tmp_path: Path) -> None:
    """On a phone the sessions come before the figures; on a wide screen they stand side by side, until one is open. The
    names of tools stand beside the beads, a call that was held for nothing looks harmless, and the legend has every
    sign."""
    loops = Loops()
    loops.go_on.set()
    guarded = loops.guarded()

    def emit(session: str, *told: tuple[str, str]) -> None:
        where = Where(session, "x-session-id", "main", "gpt-4o", "openai", "openai-chat")
        for number, (tool, action) in enumerate(told):
            guarded.fuse.bus.emit(events.HoldBegan(where))
            guarded.fuse.bus.emit(events.CallSeen(where, ToolCall(f"call_{number}", tool, "{}"), action))
            guarded.fuse.bus.emit(events.HoldEnded(where, 0.2, 100, "released"))

    async with logged_in(guarded, tmp_path) as (browser, _):
        emit("harmless", ("read_file", "none"), ("search_web", "none"))
        emit("looping", ("search_web", "steer"), ("search_web", "block"), ("search_web", "allow"))
        await browser.until("document.querySelectorAll('#list > li').length === 2")
        tops = "[...document.querySelectorAll('#list > li')].map((one) => one.getBoundingClientRect().top)"
        first, second = await browser.run(tops)
        assert first == second
        figures = "[...document.querySelectorAll('#figures li')].map((one) => one.getBoundingClientRect().top)"
        assert len(set(await browser.run(figures))) == 1
        assert await browser.run("[...document.querySelectorAll('.tools')].map((one) => one.innerText)") == [
            "A: search_web",
            "B: search_web · A: read_file",
        ]
        ring = "getComputedStyle(document.querySelector('#list .held.{}'), '::before').borderTopStyle"
        assert await browser.run(ring.format("none")) == "dotted"
        assert await browser.run(ring.format("steer")) == "solid"
        await browser.run("document.querySelector('#list .name').click()")
        first, second = await browser.run(tops)
        assert first < second
        await browser.run("document.querySelector('#close').click()")
        signs = await browser.run(
            "[...document.querySelectorAll('.legend .bead')].map((one) => one.className).join(' ')"
        )
        assert [one for one in ("none", *LEGEND) if one not in signs.split()] == []
        (pictures(tmp_path) / "wide.png").write_bytes(await browser.picture())
        await browser.look(400, 800)
        order = "['#list', '#figures'].map((one) => document.querySelector(one).getBoundingClientRect().top)"
        sessions, figures = await browser.run(order)
        assert sessions < figures
        (pictures(tmp_path) / "narrow.png").write_bytes(await browser.picture())
        assert await browser.run(CHECKS) == []
        assert await axe(browser) == []


async def test_logging_in_leaves_no_failure_in_the_console(tmp_path: Path) -> None:
    """Neither the form nor the page behind it is told of as one that could not be loaded."""
    async with logged_in(Loops().guarded(), tmp_path) as (browser, _):
        assert [one for one in browser.failures if PATH in one] == []
