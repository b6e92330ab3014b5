"""The live page of the demo's guard: opens it in a browser, and keeps it up when the story is over.

The browser is let in by a link that works once; the token that the guard was started with is made for the run, and is
printed too, for another browser.
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
    how long the page stays up at the end; None: until Ctrl-C."""

    def __init__(self, say: Say, *, pause_s: float = PAUSE_S, stay_s: float | None = None) -> None:
        self.token = secrets.token_urlsafe(24)
        self.pause_s = pause_s
        self._say = say
        self._stay_s = stay_s

    def open(self, guard: str) -> None:
        """Open the page of a guard in a browser, and tell its address. Raises DemoError."""
        address = guard + PATH
        is_open = _can_open() and webbrowser.open(f"{address}?code={_login_code(address, self.token)}")
        what = "A browser opens the live page" if is_open else "No browser can be opened here; the live page is at"
        self._say(f"{what}: {address} (token: {self.token})")

    def stay(self, guard: str) -> None:
        """Show more agents, and keep the page up. Returns after its time, or on Ctrl-C."""
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
        """The agent of a guest. Whatever ends it, its page is the story."""
        [guest] = [one for one in GUESTS if one.name == name]
        with Boundary():
            run_agent(f"{guard}/v1", _ignore, guest.task(), self.pause_s)


def _ignore(_kind: EntryKind, _text: str, _number: int) -> None:
    """Tell nobody."""


def _can_open() -> bool:
    """Whether there is a browser with a window. One for terminals would take over this one, and run no script."""
    if os.environ.get("BROWSER"):
        return True
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def _login_code(address: str, token: str) -> str:
    """Get a code for one login. Raises DemoError."""
    request = Request(f"{address}login-code", b"", {"authorization": f"Bearer {token}"})  # noqa: S310 - http only
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
            code: str = orjson.loads(answer.read())["code"]
            return code
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise DemoError(f"the live page cannot be reached: {error}") from error
