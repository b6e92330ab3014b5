"""Open the live page of the demo's guard in a browser, and keep it running after the story.

The browser logs in by a link that works once. The guard's token is generated for the run, and printed, too, for another
browser.
"""

import os
import secrets
import threading
import time
import webbrowser
from collections.abc import Callable
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import orjson

from callfuse.boundary import Boundary
from callfuse.demo.agent import run_agent
from callfuse.demo.guests import GUESTS
from callfuse.demo.servers import DemoError
from callfuse.demo.story import EntryKind

PATH = "/_callfuse/"
PAUSE_S = 1.0
"""Seconds before each request of an agent, so that a person can watch."""
TIMEOUT_S = 10.0

Say = Callable[[str], None]


class Page:
    """The page, during one demo. `say` prints a sentence. `pause_s`: seconds before each request of an agent. `stay_s`:
    how long the page keeps running at the end; None: until Ctrl-C."""

    def __init__(self, say: Say, *, pause_s: float = PAUSE_S, stay_s: float | None = None) -> None:
        self.token = secrets.token_urlsafe(24)
        self.pause_s = pause_s
        self._say = say
        self._stay_s = stay_s

    def open(self, guard: str) -> None:
        """Open the page of a guard in a browser, and print its address. Raises DemoError."""
        address = guard + PATH
        is_open = _can_open() and webbrowser.open(f"{address}?code={_login_code(address, self.token)}")
        what = "A browser opens the live page" if is_open else "No browser can be opened here; the live page is at"
        self._say(f"{what}: {address} (token: {self.token})")

    def stay(self, guard: str) -> None:
        """Run more agents, and keep the page running. Returns after its time, or on Ctrl-C."""
        if self._stay_s == 0:
            return
        end = "Ctrl-C ends it" if self._stay_s is None else f"it ends after {self._stay_s:g} s"
        self._say(f"The live page stays up, with {len(GUESTS)} more agents at work; {end}.")
        for guest in GUESTS:
            threading.Thread(target=self._run, args=(guest.name, guard), name=guest.name, daemon=True).start()
        deadline = None if self._stay_s is None else time.monotonic() + self._stay_s
        try:
            while deadline is None or time.monotonic() < deadline:
                time.sleep(0.2)
        except KeyboardInterrupt:
            self._say("")

    def _run(self, name: str, guard: str) -> None:
        """Run the agent of a guest. Its end does not matter, because the live page shows everything."""
        [guest] = [one for one in GUESTS if one.name == name]
        with Boundary():
            run_agent(f"{guard}/v1", _ignore, guest.task(), self.pause_s)


def _ignore(_kind: EntryKind, _text: str, _number: int) -> None:
    """Ignore an entry."""


def _can_open() -> bool:
    """Whether there is a browser with a window. A terminal browser would take over this terminal, and run no
    scripts."""
    if os.environ.get("BROWSER"):
        return True
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def _login_code(address: str, token: str) -> str:
    """Return a code for one login. Raises DemoError."""
    request = Request(f"{address}login-code", b"", {"authorization": f"Bearer {token}"})  # noqa: S310 - http only
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
            code: str = orjson.loads(answer.read())["code"]
            return code
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise DemoError(f"the live page cannot be reached: {error}") from error
